// SPDX-License-Identifier: Apache-2.0
// init and finalize.
#include <array>
#include <cstring>
#include <deque>
#include <thread>

#include "tools/conformance/check.hpp"
#include "tools/conformance/leaks.hpp"
#include "tools/conformance/process_state.hpp"
#include "tools/conformance/traffic.hpp"

namespace plexus::conformance {
namespace {

Result<void> opens(const Context& context) {
  return expect(context.raw() != nullptr || !context.net().is_native(),
                "init returned PLEXUS_OK but no context");
}

Result<void> finalizes(Fixture& fixture) {
  PLEXUS_TRY(net, Net::load(fixture));
  PLEXUS_TRY(context, Context::open(net));
  context.close();
  return ok();
}

Result<void> two_are_distinct(Fixture& fixture) {
  PLEXUS_TRY(net, Net::load(fixture));
  PLEXUS_TRY(first, Context::open(net, 1));
  PLEXUS_TRY(second, Context::open(net, 2));
  PLEXUS_TRY(expect(first.raw() != second.raw(), "two communicators got the same context"));
  first.close();
  PLEXUS_TRY(pair, connect_pair(second, second));
  return deliver(pair, {.size_bytes = 100});
}

Result<void> same_communicator_twice(Fixture& fixture) {
  PLEXUS_TRY(net, Net::load(fixture));
  PLEXUS_TRY(first, Context::open(net, 5));
  PLEXUS_TRY(second, Context::open(net, 5));
  PLEXUS_TRY(pair, connect_pair(first, second));
  return deliver(pair, {.size_bytes = 1000});
}

Result<void> any_order_of_ends(Fixture& fixture) {
  PLEXUS_TRY(net, Net::load(fixture));
  std::deque<Context> contexts;
  for (uint64_t id = 0; id < 6; ++id) {
    PLEXUS_TRY(context, Context::open(net, id));
    contexts.push_back(std::move(context));
  }
  for (const size_t index : {2u, 0u, 5u, 3u}) {
    contexts[index].close();
  }
  PLEXUS_TRY(pair, connect_pair(contexts[1], contexts[4]));
  return deliver(pair, {.size_bytes = 1000});
}

Result<void> many_one_after_another(Fixture& fixture) {
  PLEXUS_TRY(net, Net::load(fixture));
  for (uint64_t id = 0; id < 50; ++id) {
    PLEXUS_TRY(context, Context::open(net, id));
    context.close();
  }
  PLEXUS_TRY(context, Context::open(net));
  PLEXUS_TRY(pair, connect_pair(context, context));
  return deliver(pair, {.size_bytes = 10});
}

Result<void> from_threads(Fixture& fixture) {
  PLEXUS_TRY(net, Net::load(fixture));
  std::array<std::string, 8> problems;
  std::vector<std::thread> threads;
  for (size_t i = 0; i < problems.size(); ++i) {
    threads.emplace_back([&, i] {
      auto context = Context::open(net, i);
      problems[i] = context.has_error() ? context.error().message() : "";
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  for (const std::string& problem : problems) {
    PLEXUS_TRY(expect(problem.empty(), "one of 8 concurrent inits failed: {}", problem));
  }
  return ok();
}

/// A context with a config of the check; the properties are not read.
Result<plexus_net_context_t*> init_with(const Net& net, const plexus_net_config_t* config) {
  Monitor& monitor = net.fixture->monitor();
  plexus_net_context_t* raw = nullptr;
  const int32_t code = monitor.call(Place::kInit, [&] { return net.ops().init(config, &raw); });
  if (code != PLEXUS_OK) {
    return failed(monitor, "init", code);
  }
  return raw;
}

void finalize(const Net& net, plexus_net_context_t* raw) {
  net.fixture->monitor().call_void(Place::kFinalize, [&] { net.ops().finalize(raw); });
}

Result<void> newer_config(Fixture& fixture) {
  PLEXUS_TRY(net, Net::load(fixture));
  struct Newer {
    plexus_net_config_t known;
    std::array<uint64_t, 8> unknown;
  } config{{sizeof(Newer), -1, 9, &Monitor::write_line, fixture.monitor().sink(), nullptr}, {}};
  config.unknown.fill(~uint64_t{0});
  PLEXUS_TRY(raw, init_with(net, &config.known));
  finalize(net, raw);
  return ok();
}

Result<void> config_is_borrowed(Fixture& fixture) {
  PLEXUS_TRY(net, Net::load(fixture));
  auto config = std::make_unique<plexus_net_config_t>(plexus_net_config_t{
      sizeof(plexus_net_config_t), -1, 9, &Monitor::write_line, fixture.monitor().sink(), nullptr});
  PLEXUS_TRY(raw, init_with(net, config.get()));
  std::memset(config.get(), 0xEE, sizeof *config);
  uint32_t count = 0;
  const int32_t code = fixture.monitor().call(Place::kDeviceCount,
                                              [&] { return net.ops().device_count(raw, &count); });
  PLEXUS_TRY(expect(code == PLEXUS_OK, "device_count failed after the config was overwritten"));
  plexus_net_handle_t handle{};
  plexus_net_listen_t* listen = nullptr;
  if (fixture.monitor().call(Place::kListen, [&] {
        return net.ops().listen(raw, 0, &handle, &listen);
      }) == PLEXUS_OK) {
    fixture.monitor().call_void(Place::kCloseListen, [&] { net.ops().close_listen(listen); });
  }
  finalize(net, raw);
  return ok();
}

Result<void> traffic_class(Fixture& fixture) {
  PLEXUS_TRY(net, Net::load(fixture));
  for (const int32_t wish : {0, 5, 255}) {
    const plexus_net_config_t config{
        sizeof config, wish, 9, &Monitor::write_line, fixture.monitor().sink(), nullptr};
    plexus_net_context_t* raw = nullptr;
    const int32_t code =
        fixture.monitor().call(Place::kInit, [&] { return net.plugin->init(&config, &raw); });
    PLEXUS_TRY(expect(code == PLEXUS_OK || code == PLEXUS_INVALID_USAGE,
                      "init with traffic class {} failed with code {}", wish, code));
    if (code == PLEXUS_OK) {
      finalize(net, raw);
    }
  }
  return ok();
}

Result<void> leaves_the_process(Fixture& fixture) {
  const Surroundings before;
  PLEXUS_TRY(net, Net::load(fixture));
  PLEXUS_TRY(context, Context::open(net));
  PLEXUS_TRY(pair, connect_pair(context, context));
  PLEXUS_TRY(deliver(pair, {.size_bytes = 100}));
  return before.expect_unchanged("it");
}

Result<void> leaves_nothing(Fixture& fixture) {
  PLEXUS_TRY(net, Net::load(fixture));
  {
    PLEXUS_TRY(Context::open(net));  // allocates what a process keeps once
  }
  const Holdings before;
  for (uint64_t id = 0; id < 10; ++id) {
    PLEXUS_TRY(Context::open(net, id));
  }
  return before.expect_nothing_more("10 contexts were finalized");
}

Result<void> leaves_no_memory(Fixture& fixture) {
  PLEXUS_TRY(net, Net::load(fixture));
  const auto use = [&](int times) -> Result<void> {
    for (int i = 0; i < times; ++i) {
      PLEXUS_TRY(Context::open(net, 3));
    }
    return ok();
  };
  PLEXUS_TRY(use(10));
  return leaves_no_memory(fixture,
                          {.use = use, .times = 200, .what = "contexts", .bytes_each = 16});
}

constexpr const char* kInitRule =
    "plexus_net.h init: makes the context of one communicator; nothing is shared with other "
    "contexts, as far as the caller can see";
constexpr CheckOptions kNative = {.abi = CheckOptions::Abi::kNative};

constexpr std::array kChecks = {
    Check{"init.ok", "creates a context", kInitRule, on_context<opens>},
    Check{"init.finalize", "finalizes a context that was not used",
          "plexus_net.h finalize: ends the context", finalizes},
    Check{"init.two", "returns a separate context for each communicator", kInitRule,
          two_are_distinct},
    Check{"init.same_communicator", "serves two ranks of one communicator in a process", kInitRule,
          same_communicator_twice},
    Check{"init.order", "finalizes contexts in any order", kInitRule, any_order_of_ends},
    Check{"init.many", "serves many communicators one after another", kInitRule,
          many_one_after_another},
    Check{"init.threads", "creates contexts in several threads concurrently",
          "plexus_net.h init: Threads: any, also concurrently", from_threads},
    Check{"init.newer_config", "ignores fields of a newer config",
          "plexus_net.h: read a field only if it is within struct_size", newer_config, kNative},
    Check{"init.config_borrowed", "keeps no pointer to the config",
          "plexus_net.h: borrowed for the call", config_is_borrowed, kNative},
    Check{"init.traffic_class", "accepts a traffic class, or refuses it with an error",
          "plexus_net.h: traffic_class, requested by the user", traffic_class, kNative},
    Check{"init.process", "changes no state of the process",
          "no entry raises a signal, ends the process, or lets an exception out",
          leaves_the_process},
    Check{"init.leaves", "leaks no descriptor and no thread after finalize",
          "plexus_net.h: init .. finalize", leaves_nothing},
    Check{"init.memory",
          "leaks no memory after finalize",
          "plexus_net.h: init .. finalize",
          leaves_no_memory,
          {.is_alone = true}},
};

}  // namespace

CheckTable context_checks() { return kChecks; }

}  // namespace plexus::conformance
