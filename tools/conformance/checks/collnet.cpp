// SPDX-License-Identifier: Apache-2.0
// Checks of a collnet plugin: descriptor, contexts, devices, the reductions it supports, handles
// and groups. The results of reductions: reduction.cpp.
#include "tools/conformance/collnet.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <thread>
#include <unistd.h>

#include "core/plugin/library.hpp"
#include "tools/conformance/check.hpp"
#include "tools/conformance/collnet_data.hpp"
#include "tools/conformance/process_state.hpp"

namespace plexus::conformance {
namespace {

Result<void> descriptor(Fixture& fixture) {
  PLEXUS_TRY(Collnet::load(fixture));  // refuses incomplete tables
  return ok();
}

Result<void> descriptor_is_constant(Fixture& fixture) {
  PLEXUS_TRY(Collnet::load(fixture));
  PLEXUS_TRY(library, Library::load(fixture.file()));
  using Query = const plexus_collnet_plugin_t*(uint32_t);
  Query* const query = library.find_function<Query>("plexus_collnet_query");
  const plexus_collnet_plugin_t* const first = query(PLEXUS_HOST_ABI);
  const plexus_collnet_plugin_t copy = *first;
  for (const uint32_t host : {PLEXUS_HOST_ABI, PLEXUS_HOST_ABI + 5, PLEXUS_HOST_ABI}) {
    const plexus_collnet_plugin_t* again = nullptr;
    fixture.monitor().call_void(Place::kQuery, [&] { again = query(host); });
    PLEXUS_TRY(expect(again != nullptr && std::memcmp(again, &copy, sizeof copy) == 0,
                      "it returns no descriptor, or another one, to a host of ABI {}.{}",
                      host >> 16, host & 0xFFFFU));
  }
  const plexus_collnet_plugin_t* other = nullptr;
  fixture.monitor().call_void(Place::kQuery, [&] { other = query((PLEXUS_ABI_MAJOR + 1U) << 16); });
  return expect(other == nullptr || other->abi_major == PLEXUS_ABI_MAJOR,
                "it claims the major version of a host whose major version differs");
}

Result<void> opens(const CollnetUse&) { return ok(); }

Result<void> devices(const CollnetUse& use) {
  for (const plexus_collnet_properties_t& each : use.devices()) {
    if (auto checked = check_collnet_properties(each); checked.has_error()) {
      return wrong("{}", checked.error().message());
    }
    PLEXUS_TRY(expect(std::all_of(std::begin(each.reserved), std::end(each.reserved),
                                  [](uint32_t word) { return word == 0; }),
                      "device {} has `reserved` fields that are not 0", each.name));
  }
  return ok();
}

Result<void> devices_are_constant(const CollnetUse& use) {
  PLEXUS_TRY(other, CollnetUse::open(use.collnet(), 43));
  PLEXUS_TRY(expect(other.devices().size() == use.devices().size(),
                    "a second context has {} devices, the first has {}", other.devices().size(),
                    use.devices().size()));
  for (size_t i = 0; i < use.devices().size(); ++i) {
    PLEXUS_TRY(
        expect(std::memcmp(&use.devices()[i], &other.devices()[i], sizeof use.devices()[i]) == 0,
               "device {} has other properties in a second context", i));
  }
  return ok();
}

Result<void> supports_something(const CollnetUse& use) {
  bool any = false;
  for (int32_t type = 0; type < kTypes; ++type) {
    for (int32_t op = 0; op < kOps; ++op) {
      PLEXUS_TRY(first, use.supports(type, op));
      PLEXUS_TRY(again, use.supports(type, op));
      PLEXUS_TRY(expect(first == again, "reduce_support of {} and {} differs between two calls",
                        collnet_type_name(type), collnet_op_name(op)));
      any = any || first;
    }
  }
  return expect(any, "it supports no reduction");
}

Result<void> supports_no_unknown(const CollnetUse& use) {
  constexpr std::array<std::array<int32_t, 2>, 6> kUnknown = {
      {{-1, 0}, {12, 0}, {1000, 0}, {7, -1}, {7, 5}, {7, 1000}}};
  for (const auto& [type, op] : kUnknown) {
    PLEXUS_TRY(supported, use.supports(type, op));
    PLEXUS_TRY(expect(
        !supported, "it claims to reduce type {} with operation {}, which do not exist", type, op));
  }
  return ok();
}

Result<void> listens(const CollnetUse& use) {
  for (uint32_t device = 0; device < use.devices().size(); ++device) {
    PLEXUS_TRY(first, Member::listen(use, device));
    PLEXUS_TRY(second, Member::listen(use, device));
    PLEXUS_TRY(expect(std::memcmp(&first.handle(), &second.handle(), sizeof first.handle()) != 0,
                      "two members that listen on device {} get the same handle", device));
  }
  return ok();
}

Result<void> refuses_no_device(const CollnetUse& use) {
  auto listening = Member::listen(use, static_cast<uint32_t>(use.devices().size()) + 7);
  return expect(listening.has_error(), "listen succeeded on a device that does not exist");
}

/// Member 1 of two never joins.
Result<void> connect_does_not_wait(const CollnetUse& use) {
  PLEXUS_TRY(here, Member::listen(use));
  PLEXUS_TRY(absent, Member::listen(use));
  const std::array<plexus_net_handle_t, 2> handles = {here.handle(), absent.handle()};
  Fixture& fixture = here.fixture();
  fixture.monitor().measure_this_thread();
  PLEXUS_TRY(fixture.repeat_for(milliseconds(200), [&]() -> Result<void> {
    const int32_t code = here.try_connect(handles, 0);
    return expect(code == PLEXUS_AGAIN, "connect returned {} before the other member connected",
                  code);
  }));
  const auto longest = fixture.monitor().times(Place::kConnect).longest;
  PLEXUS_TRY(expect(longest < fixture.bound(milliseconds(500)),
                    "a call of connect took {} us; it must not block", longest.count() / 1000));
  here.close();  // a group that is not complete yet
  return ok();
}

template <uint32_t size>
Result<void> makes_group(const CollnetUse& use) {
  PLEXUS_TRY(reduction, find_reduction(use));
  PLEXUS_TRY(team, make_team(use, size));
  return reduce(team, reduction);
}

template <uint32_t size>
Result<void> makes_group_of_processes(Fixture& fixture) {
  PLEXUS_TRY(collnet, Collnet::load(fixture));
  PLEXUS_TRY(use, CollnetUse::open(collnet));
  PLEXUS_TRY(reduction, find_reduction(use));
  PLEXUS_TRY(team, make_team_of_processes(use, size));
  PLEXUS_TRY(reduce(team, reduction));
  return fixture.peer().meet();
}

Result<void> groups_beside_each_other(const CollnetUse& use) {
  PLEXUS_TRY(first, make_team(use, 2));
  PLEXUS_TRY(second, make_team(use, 3));
  PLEXUS_TRY(reduction, find_reduction(use));
  PLEXUS_TRY(reduce(first, reduction));
  reduction.salt = 1;  // different numbers
  PLEXUS_TRY(reduce(second, reduction));
  first.members.clear();
  return reduce(second, reduction);
}

Result<void> many_leave_nothing(Fixture& fixture) {
  PLEXUS_TRY(collnet, Collnet::load(fixture));
  const auto use_it = [&](int times) -> Result<void> {
    for (int i = 0; i < times; ++i) {
      PLEXUS_TRY(use, CollnetUse::open(collnet));
      PLEXUS_TRY(team, make_team(use, 2));
      PLEXUS_TRY(reduction, find_reduction(use));
      PLEXUS_TRY(reduce(team, reduction));
    }
    return ok();
  };
  PLEXUS_TRY(use_it(3));
  const Holdings before;
  PLEXUS_TRY(use_it(20));
  PLEXUS_TRY(fixture.wait_until(
      "the release of what closed groups hold",
      [&]() -> Result<bool> { return before.opened().empty(); }, seconds(2)));
  return before.expect_no_threads("20 groups were made and closed");
}

Result<void> process_is_left(Fixture& fixture) {
  const Surroundings surroundings;
  std::thread([] {}).join();  // ThreadSanitizer starts a thread of its own with the first one
  const Holdings before;
  {
    PLEXUS_TRY(collnet, Collnet::load(fixture));
    PLEXUS_TRY(use, CollnetUse::open(collnet));
    PLEXUS_TRY(team, make_team(use, 2));
    PLEXUS_TRY(reduction, find_reduction(use));
    PLEXUS_TRY(reduce(team, reduction));
  }
  PLEXUS_TRY(surroundings.expect_unchanged("it"));
  PLEXUS_TRY(expect(::lseek(STDOUT_FILENO, 0, SEEK_END) == 0, "it wrote to stdout or stderr"));
  return before.expect_no_threads("it was used");
}

Result<void> exits(const CollnetUse& use) { return makes_group<2>(use); }

constexpr const char* kLifeRule =
    "plexus_collnet.h: init, listen, connect, register_memory, iallreduce, test, deregister, "
    "close_group, close_listen, finalize";
constexpr const char* kConnectRule =
    "plexus_collnet.h connect: PLEXUS_AGAIN until the group is complete; no blocking";
constexpr const char* kSupportRule =
    "plexus_collnet.h reduce_support: constant for the life of the context; what is not known is "
    "not supported";

constexpr std::array kChecks = {
    Check{"collnet.descriptor", "has a complete descriptor and table",
          "plexus_collnet.h: magic, sizes, ABI, name, version, all entries", descriptor},
    Check{"collnet.constant",
          "returns the same descriptor every time",
          "plexus_collnet.h: static storage of the plugin",
          descriptor_is_constant,
          {.abi = CheckOptions::Abi::kNative}},
    Check{"collnet.init", "creates and finalizes a context", kLifeRule, on_use<opens>},
    Check{"collnet.devices", "has usable devices", "plexus_collnet.h: properties", on_use<devices>},
    Check{"collnet.devices_constant", "has the same devices in every context",
          "plexus_collnet.h: device_count, properties as in plexus_net.h",
          on_use<devices_are_constant>},
    Check{"collnet.support", "supports a reduction, and reports the same twice", kSupportRule,
          on_use<supports_something>},
    Check{"collnet.support_unknown", "reports no support for unknown types and operations",
          kSupportRule, on_use<supports_no_unknown>},
    Check{"collnet.listen", "fills in a different handle for each member",
          "plexus_collnet.h listen: fills in its handle, which is secret", on_use<listens>},
    Check{"collnet.no_device",
          "refuses a device that does not exist",
          "plexus_net.h: PLEXUS_INVALID_ARGUMENT for what is not there",
          on_use<refuses_no_device>,
          {.abi = CheckOptions::Abi::kNative}},
    Check{"collnet.no_wait", "does not block while a member is missing", kConnectRule,
          on_use<connect_does_not_wait>},
    Check{"collnet.two", "connects a group of two members", kConnectRule, on_use<makes_group<2>>},
    Check{"collnet.three", "connects a group of three members", kConnectRule,
          on_use<makes_group<3>>},
    Check{"collnet.two_processes",
          "connects a group of two processes",
          kConnectRule,
          makes_group_of_processes<2>,
          {.processes = 2}},
    Check{"collnet.three_members",
          "connects a group of three members in two processes",
          kConnectRule,
          makes_group_of_processes<3>,
          {.processes = 2}},
    Check{"collnet.groups", "keeps two groups apart", kLifeRule, on_use<groups_beside_each_other>},
    Check{"collnet.many",
          "connects many groups and leaks nothing",
          kLifeRule,
          many_leave_nothing,
          {.is_alone = true}},
    Check{"collnet.process", "changes no state of the process",
          "a plugin leaves the process as it is", process_is_left},
    Check{"collnet.exit",
          "lets the process exit after use",
          "no entry raises a signal, ends the process",
          on_use<exits>,
          {.exits = true}},
};

}  // namespace

CheckTable collnet_checks() { return kChecks; }

}  // namespace plexus::conformance
