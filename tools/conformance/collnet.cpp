// SPDX-License-Identifier: Apache-2.0
#include "tools/conformance/collnet.hpp"

#include <algorithm>
#include <cstring>

#include "core/plugin/collnet_registry.hpp"
#include "tools/conformance/collnet_data.hpp"
#include "tools/conformance/library.hpp"
#include "tools/conformance/net.hpp"

namespace plexus::conformance {
namespace {

constexpr size_t kGuardBytes = 64;
constexpr std::byte kGuard{0xA5};

/// A buffer at an offset, with guards on both sides.
class CollnetBuffer {
 public:
  CollnetBuffer(size_t size_bytes, size_t offset_bytes)
      : begin_(kGuardBytes + offset_bytes), bytes_(begin_ + size_bytes + kGuardBytes, kGuard) {}
  [[nodiscard]] std::byte* data() noexcept { return bytes_.data() + begin_; }
  [[nodiscard]] size_t size_bytes() const noexcept { return bytes_.size() - begin_ - kGuardBytes; }
  void fill(const std::vector<std::byte>& from) { std::copy(from.begin(), from.end(), data()); }
  [[nodiscard]] bool holds(const std::vector<std::byte>& expected) const {
    return std::equal(expected.begin(), expected.end(),
                      bytes_.begin() + static_cast<ptrdiff_t>(begin_));
  }
  [[nodiscard]] bool are_guards_whole() const {
    const auto is_guard = [](std::byte each) { return each == kGuard; };
    return std::all_of(bytes_.begin(), bytes_.begin() + static_cast<ptrdiff_t>(begin_), is_guard) &&
           std::all_of(bytes_.end() - kGuardBytes, bytes_.end(), is_guard);
  }

 private:
  size_t begin_;
  std::vector<std::byte> bytes_;
};

/// One member's side of a reduction.
struct Side {
  CollnetBuffer send;
  CollnetBuffer recv;
  plexus_collnet_reduction_t what{};
  plexus_collnet_request_t* request = nullptr;
  bool is_started = false;
  bool is_done = false;
};

Result<void> prepare(Member& member, const Reduction& reduction, Side& side) {
  PLEXUS_TRY(send_memory, member.register_memory(side.send.data(), side.send.size_bytes()));
  plexus_collnet_memory_t* recv_memory = send_memory;
  if (!reduction.is_in_place) {
    PLEXUS_TRY(registered, member.register_memory(side.recv.data(), side.recv.size_bytes()));
    recv_memory = registered;
  }
  side.what = {side.send.data(), reduction.is_in_place ? side.send.data() : side.recv.data(),
               reduction.count,  send_memory,
               recv_memory,      reduction.type,
               reduction.op};
  return ok();
}

/// Returns false until it is done.
Result<bool> advance(Member& member, Side& side) {
  if (!side.is_started) {
    const int32_t code = member.iallreduce(side.what, &side.request);
    if (code == PLEXUS_AGAIN) {
      return false;  // nothing was started: try the same again
    }
    if (code != PLEXUS_OK) {
      return failed(member.monitor(), "iallreduce", code);
    }
    side.is_started = true;
  }
  if (!side.is_done) {
    const int32_t code = member.test(side.request);
    if (code != PLEXUS_OK && code != PLEXUS_AGAIN) {
      return failed(member.monitor(), "test", code);
    }
    side.is_done = code == PLEXUS_OK;
  }
  return side.is_done;
}

Result<void> connect_all(Fixture& fixture,
                         Team& team,
                         const std::vector<plexus_net_handle_t>& handles) {
  std::vector<bool> is_connected(team.members.size());
  return fixture.wait_until("connect of all members", [&]() -> Result<bool> {
    bool all = true;
    for (size_t i = 0; i < team.members.size(); ++i) {
      if (is_connected[i]) {
        continue;
      }
      const int32_t code = team.members[i].try_connect(handles, team.numbers[i]);
      if (code != PLEXUS_OK && code != PLEXUS_AGAIN) {
        return failed(fixture.monitor(), "connect", code);
      }
      is_connected[i] = code == PLEXUS_OK;
      all = all && is_connected[i];
    }
    return all;
  });
}

}  // namespace

Result<Collnet> Collnet::load(Fixture& fixture) {
  PLEXUS_TRY(library, load_library(fixture));
  fixture.status().place = Place::kLoading;
  auto plugin = load_collnet_plugin(library);
  fixture.status().place = Place::kKit;
  if (plugin.has_error()) {
    return wrong("it cannot be used: {}", plugin.error().message());
  }
  if (plugin.value() == nullptr) {
    return wrong("it has neither plexus_collnet_query nor ncclCollNetPlugin_v6 to v12");
  }
  return Collnet{&fixture, std::move(plugin).value()};
}

Result<CollnetUse> CollnetUse::open(const Collnet& collnet, uint64_t comm_id) {
  Monitor& monitor = collnet.monitor();
  plexus_collnet_config_t config{};
  config.struct_size = sizeof config;
  config.comm_id = comm_id;
  config.log = &Monitor::write_line;
  config.log_sink = monitor.sink();
  CollnetUse use(collnet);
  plexus_collnet_context_t* raw = nullptr;
  const CollnetOrigin* const origin = collnet.plugin->origin.get();
  const int32_t made = monitor.call(Place::kInit, [&] {
    return origin != nullptr ? origin->init(&config, &raw) : collnet.ops().init(&config, &raw);
  });
  if (made != PLEXUS_OK) {
    return failed(monitor, "init", made);
  }
  use.raw_ = raw;
  uint32_t count = 0;
  const int32_t counted =
      monitor.call(Place::kDeviceCount, [&] { return collnet.ops().device_count(raw, &count); });
  if (counted != PLEXUS_OK) {
    return failed(monitor, "device_count", counted);
  }
  if (count == 0 || count > kNetDevicesMax) {
    return wrong("it has {} devices here, 1..{} are needed to check it", count, kNetDevicesMax);
  }
  for (uint32_t device = 0; device < count; ++device) {
    plexus_collnet_properties_t properties{};
    const int32_t code = monitor.call(
        Place::kProperties, [&] { return collnet.ops().properties(raw, device, &properties); });
    if (code != PLEXUS_OK) {
      return failed(monitor, "properties", code);
    }
    use.devices_.push_back(properties);
  }
  return use;
}

CollnetUse::~CollnetUse() {
  if (raw_ != nullptr) {
    collnet_->monitor().call_void(Place::kFinalize, [&] { collnet_->ops().finalize(raw_); });
  }
}

Result<bool> CollnetUse::supports(int32_t type, int32_t op) const {
  constexpr uint32_t kUnset = 77;
  uint32_t supported = kUnset;
  const int32_t code = collnet_->monitor().call(Place::kReduceSupport, [&] {
    return collnet_->ops().reduce_support(raw_, type, op, &supported);
  });
  if (code != PLEXUS_OK) {
    return failed(collnet_->monitor(), "reduce_support", code);
  }
  PLEXUS_TRY(expect(supported <= 1, "reduce_support of type {}, operation {} returned {}", type, op,
                    supported));
  return supported == 1;
}

Result<Member> Member::listen(const CollnetUse& use, uint32_t device) {
  Member member(use.collnet());
  const int32_t code = use.collnet().monitor().call(Place::kListen, [&] {
    return use.collnet().ops().listen(use.raw(), device, &member.handle_, &member.listen_);
  });
  if (code != PLEXUS_OK) {
    return failed(use.collnet().monitor(), "listen", code);
  }
  PLEXUS_TRY(expect(member.listen_ != nullptr, "listen returned PLEXUS_OK but no handle"));
  return member;
}

int32_t Member::try_connect(std::span<const plexus_net_handle_t> handles, uint32_t number) {
  return monitor().call(Place::kConnect, [&] {
    const int32_t code = collnet_->ops().connect(
        listen_, handles.data(), static_cast<uint32_t>(handles.size()), number, &group_);
    if (code == PLEXUS_OK && group_ == nullptr) {
      monitor().report("connect returned PLEXUS_OK but no group");
    }
    return code;
  });
}

Result<plexus_collnet_memory_t*> Member::register_memory(void* data, uint64_t size_bytes) {
  const plexus_net_region_t region = {data, size_bytes, 0, -1, PLEXUS_MEMORY_HOST};
  plexus_collnet_memory_t* memory = nullptr;
  const int32_t code = monitor().call(
      Place::kRegister, [&] { return collnet_->ops().register_memory(group_, &region, &memory); });
  if (code != PLEXUS_OK) {
    return failed(monitor(), "register_memory", code);
  }
  if (memory != nullptr) {
    memory_.push_back(memory);
  }
  return memory;
}

int32_t Member::iallreduce(const plexus_collnet_reduction_t& reduction,
                           plexus_collnet_request_t** request) {
  *request = nullptr;
  const int32_t code = monitor().call(
      Place::kIallreduce, [&] { return collnet_->ops().iallreduce(group_, &reduction, request); });
  if (code == PLEXUS_OK && *request == nullptr) {
    monitor().report("iallreduce returned PLEXUS_OK but no request");
  }
  return code;
}

int32_t Member::test(plexus_collnet_request_t* request) {
  return monitor().call(Place::kTest, [&] { return collnet_->ops().test(request); });
}

void Member::deregister() {
  for (plexus_collnet_memory_t* memory : std::exchange(memory_, {})) {
    monitor().call(Place::kDeregister, [&] { return collnet_->ops().deregister(memory); });
  }
}

void Member::close() {
  deregister();
  if (auto* const group = std::exchange(group_, nullptr); group != nullptr) {
    monitor().call_void(Place::kCloseGroup, [&] { collnet_->ops().close_group(group); });
  }
  if (auto* const listening = std::exchange(listen_, nullptr); listening != nullptr) {
    monitor().call_void(Place::kCloseListen, [&] { collnet_->ops().close_listen(listening); });
  }
}

Result<Team> make_team(const CollnetUse& use, uint32_t size) {
  Team team;
  team.size = size;
  std::vector<plexus_net_handle_t> handles;
  for (uint32_t number = 0; number < size; ++number) {
    PLEXUS_TRY(member, Member::listen(use));
    handles.push_back(member.handle());
    team.members.push_back(std::move(member));
    team.numbers.push_back(number);
  }
  PLEXUS_TRY(connect_all(*use.collnet().fixture, team, handles));
  return team;
}

Result<Team> make_team_of_processes(const CollnetUse& use, uint32_t size) {
  Fixture& fixture = *use.collnet().fixture;
  Team team;
  team.size = size;
  std::vector<plexus_net_handle_t> handles(size);
  for (uint32_t number = fixture.role(); number < size; number += 2) {
    PLEXUS_TRY(member, Member::listen(use));
    handles[number] = member.handle();
    PLEXUS_TRY(fixture.peer().send(member.handle()));
    team.members.push_back(std::move(member));
    team.numbers.push_back(number);
  }
  for (uint32_t number = 1 - fixture.role(); number < size; number += 2) {
    PLEXUS_TRY(handle, fixture.peer().receive<plexus_net_handle_t>());
    handles[number] = handle;
  }
  PLEXUS_TRY(connect_all(fixture, team, handles));
  return team;
}

Result<Reduction> find_reduction(const CollnetUse& use, uint64_t count) {
  for (const int32_t type :
       {PLEXUS_TYPE_INT8, PLEXUS_TYPE_UINT8, PLEXUS_TYPE_INT32, PLEXUS_TYPE_FLOAT32,
        PLEXUS_TYPE_FLOAT16, PLEXUS_TYPE_BFLOAT16, PLEXUS_TYPE_FLOAT64, PLEXUS_TYPE_INT64}) {
    for (const int32_t op : {PLEXUS_REDUCE_SUM, PLEXUS_REDUCE_MAX}) {
      PLEXUS_TRY(supported, use.supports(type, op));
      if (supported) {
        return Reduction{.type = type, .op = op, .count = count};
      }
    }
  }
  return skip("it supports none of the usual types");
}

Result<void> reduce(Team& team, const Reduction& reduction) {
  const CollnetData data = {reduction.type, reduction.op, reduction.count, reduction.salt};
  const size_t element_bytes = collnet_element_bytes(reduction.type);
  const size_t size_bytes = reduction.count * element_bytes;
  std::vector<std::vector<std::byte>> parts;
  std::vector<Side> sides;
  sides.reserve(team.members.size());
  for (size_t i = 0; i < team.members.size(); ++i) {
    parts.push_back(make_part(data, team.numbers[i]));
    sides.push_back({CollnetBuffer(size_bytes, reduction.offset * element_bytes),
                     CollnetBuffer(size_bytes, reduction.offset * element_bytes)});
    sides[i].send.fill(parts[i]);
    PLEXUS_TRY(prepare(team.members[i], reduction, sides[i]));
  }
  PLEXUS_TRY(team.members[0].fixture().wait_until("a reduction", [&]() -> Result<bool> {
    bool all = true;
    for (size_t i = 0; i < sides.size(); ++i) {
      PLEXUS_TRY(is_done, advance(team.members[i], sides[i]));
      all = all && is_done;
    }
    return all;
  }));
  for (Member& member : team.members) {
    member.deregister();
  }
  const std::vector<std::byte> expected = make_result(data, team.size);
  for (size_t i = 0; i < sides.size(); ++i) {
    const CollnetBuffer& result = reduction.is_in_place ? sides[i].send : sides[i].recv;
    PLEXUS_TRY(expect(result.holds(expected),
                      "the {} of {} elements of {} over {} members is wrong on member {}",
                      collnet_op_name(reduction.op), reduction.count,
                      collnet_type_name(reduction.type), team.size, team.numbers[i]));
    PLEXUS_TRY(expect(reduction.is_in_place || sides[i].send.holds(parts[i]),
                      "it changed the send buffer of member {}", team.numbers[i]));
    PLEXUS_TRY(expect(sides[i].send.are_guards_whole() && sides[i].recv.are_guards_whole(),
                      "it wrote outside the buffers of member {}", team.numbers[i]));
  }
  return ok();
}

}  // namespace plexus::conformance
