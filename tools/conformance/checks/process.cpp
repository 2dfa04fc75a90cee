// SPDX-License-Identifier: Apache-2.0
// Two processes over loopback, and processes that fork.
#include <algorithm>
#include <array>
#include <deque>
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tools/conformance/check.hpp"
#include "tools/conformance/process_state.hpp"
#include "tools/conformance/traffic.hpp"

namespace plexus::conformance {
namespace {

/// Sends the same messages from one process to the other.
template <auto make_messages>
Result<void> messages_between(Fixture& fixture) {
  PLEXUS_TRY(net, Net::load(fixture));
  PLEXUS_TRY(context, Context::open(net));
  const std::vector<TestMessage> messages = make_messages(context);
  Result<void> result = ok();
  if (fixture.role() == 0) {
    PLEXUS_TRY(send, connect_to_peer(context));
    result = deliver_out(send, messages);
    PLEXUS_TRY(std::move(result));
    return fixture.peer().meet();
  }
  PLEXUS_TRY(recv, accept_from_peer(context));
  result = deliver_in(recv, messages);
  PLEXUS_TRY(std::move(result));
  return fixture.peer().meet();
}

std::vector<TestMessage> short_messages(const Context&) {
  return std::vector<TestMessage>(2000, {.size_bytes = 64});
}
std::vector<TestMessage> long_messages(const Context& context) {
  return std::vector<TestMessage>(16, {.size_bytes = longest_message(context, 4 << 20)});
}
std::vector<TestMessage> mixed_messages(const Context& context) {
  std::vector<TestMessage> messages;
  for (uint64_t i = 0; i < 300; ++i) {
    messages.push_back({.size_bytes = i % 7 == 0 ? longest_message(context, 100000 + i) : i,
                        .tag = static_cast<int32_t>(i % 3),
                        .spare_bytes = i % 5});
  }
  return messages;
}

/// A connection in each direction: the first is made by process 0.
struct Duplex {
  Send send;
  Recv recv;
};
Result<Duplex> connect_duplex(const Context& context) {
  if (context.net().fixture->role() == 0) {
    PLEXUS_TRY(send, connect_to_peer(context));
    PLEXUS_TRY(recv, accept_from_peer(context));
    return Duplex{std::move(send), std::move(recv)};
  }
  PLEXUS_TRY(recv, accept_from_peer(context));
  PLEXUS_TRY(send, connect_to_peer(context));
  return Duplex{std::move(send), std::move(recv)};
}

Result<void> ping_pong(Fixture& fixture) {
  PLEXUS_TRY(net, Net::load(fixture));
  PLEXUS_TRY(context, Context::open(net));
  PLEXUS_TRY(duplex, connect_duplex(context));
  const Bytes message = make_message(32, 1);
  for (int i = 0; i < 500; ++i) {
    GuardedBuffer target(32);
    Traffic traffic(fixture);
    PLEXUS_TRY(received, traffic.recv(duplex.recv, target));
    if (fixture.role() == 0) {
      PLEXUS_TRY(traffic.send(duplex.send, message));
    }
    PLEXUS_TRY(traffic.finish(*received));
    PLEXUS_TRY(target.expect_message(message));
    if (fixture.role() == 1) {
      PLEXUS_TRY(traffic.send(duplex.send, message));
    }
    PLEXUS_TRY(traffic.finish());
  }
  return fixture.peer().meet();
}

Result<void> both_ways_at_once(Fixture& fixture) {
  PLEXUS_TRY(net, Net::load(fixture));
  PLEXUS_TRY(context, Context::open(net));
  PLEXUS_TRY(duplex, connect_duplex(context));
  const Bytes own = make_message(longest_message(context, 2 << 20), fixture.role());
  const Bytes other = make_message(own.size(), 1 - fixture.role());
  for (int i = 0; i < 5; ++i) {
    GuardedBuffer target(own.size());
    Traffic traffic(fixture);
    PLEXUS_TRY(traffic.recv(duplex.recv, target));
    PLEXUS_TRY(traffic.send(duplex.send, own));
    PLEXUS_TRY(traffic.finish());
    PLEXUS_TRY(target.expect_message(other));
  }
  return fixture.peer().meet();
}

Result<void> many_connections(Fixture& fixture) {
  constexpr size_t kCount = 16;
  PLEXUS_TRY(net, Net::load(fixture));
  PLEXUS_TRY(context, Context::open(net));
  std::deque<Send> sends;
  std::deque<Recv> recvs;
  for (size_t i = 0; i < kCount; ++i) {
    if (fixture.role() == 0) {
      PLEXUS_TRY(send, connect_to_peer(context));
      sends.push_back(std::move(send));
    } else {
      PLEXUS_TRY(recv, accept_from_peer(context));
      recvs.push_back(std::move(recv));
    }
  }
  std::deque<Bytes> messages;
  std::deque<GuardedBuffer> targets;
  Traffic traffic(fixture);
  for (size_t i = 0; i < 4 * kCount; ++i) {
    messages.push_back(make_message(10000 + i, i));
    targets.emplace_back(10000 + i);
    if (fixture.role() == 0) {
      PLEXUS_TRY(traffic.send(sends[i % kCount], messages.back()));
    } else {
      PLEXUS_TRY(traffic.recv(recvs[i % kCount], targets.back()));
    }
  }
  PLEXUS_TRY(traffic.finish());
  for (size_t i = 0; i < targets.size() && fixture.role() == 1; ++i) {
    PLEXUS_TRY(targets[i].expect_message(messages[i]));
  }
  return fixture.peer().meet();
}

Result<void> grouped(Fixture& fixture) {
  PLEXUS_TRY(net, Net::load(fixture));
  PLEXUS_TRY(context, Context::open(net));
  const uint32_t most = context.properties().recvs_max;
  if (most < 2) {
    return skip("recvs_max is {}", most);
  }
  std::deque<Bytes> messages;
  for (uint32_t i = 0; i < most; ++i) {
    messages.push_back(make_message(1000 + i, i));
  }
  Traffic traffic(fixture);
  if (fixture.role() == 0) {
    PLEXUS_TRY(send, connect_to_peer(context));
    Traffic out(fixture);
    for (uint32_t i = most; i-- > 0;) {
      PLEXUS_TRY(out.send(send, messages[i], static_cast<int32_t>(i)));
    }
    PLEXUS_TRY(out.finish());
    return fixture.peer().meet();
  }
  PLEXUS_TRY(recv, accept_from_peer(context));
  std::deque<GuardedBuffer> targets;
  std::vector<Wanted> wanted;
  for (uint32_t i = 0; i < most; ++i) {
    targets.emplace_back(2000);
    wanted.push_back({&targets.back(), static_cast<int32_t>(i)});
  }
  Traffic in(fixture);
  PLEXUS_TRY(received, in.recv(recv, wanted));
  PLEXUS_TRY(in.finish());
  for (uint32_t i = 0; i < most; ++i) {
    PLEXUS_TRY(expect(reports_right_size(net, received->sizes_bytes[i], messages[i].size()),
                      "buffer {} has {} bytes", i, received->sizes_bytes[i]));
    PLEXUS_TRY(targets[i].expect_message(messages[i]));
  }
  return fixture.peer().meet();
}

/// Forks a child that exits at once without calling the plugin.
Result<void> fork_and_wait() {
  const pid_t child = ::fork();
  if (child == 0) {
    ::_exit(0);
  }
  int status = -1;
  PLEXUS_TRY(expect(child > 0 && ::waitpid(child, &status, 0) == child && status == 0,
                    "a forked child failed"));
  return ok();
}

Result<void> forks_between_messages(Pair& pair) {
  PLEXUS_TRY(deliver(pair, {.size_bytes = 1000}));
  PLEXUS_TRY(fork_and_wait());
  PLEXUS_TRY(deliver(pair, {.size_bytes = 1000}));
  const Bytes message = make_message(std::min<uint64_t>(50000, pair.send.message_bytes_max()), 2);
  GuardedBuffer target(message.size());
  Traffic traffic(*pair.send.net().fixture);
  PLEXUS_TRY(traffic.recv(pair.recv, target));
  PLEXUS_TRY(traffic.send(pair.send, message));
  PLEXUS_TRY(traffic.step());
  PLEXUS_TRY(fork_and_wait());
  PLEXUS_TRY(traffic.finish());
  return target.expect_message(message);
}

Result<void> used_in_a_child(Fixture& fixture) {
  // Loaded before the fork and used after it, as with a launcher that preloads.
  PLEXUS_TRY(net, Net::load(fixture));
  const pid_t child = ::fork();
  if (child == 0) {
    const auto use = [&]() -> Result<void> {
      PLEXUS_TRY(context, Context::open(net));
      PLEXUS_TRY(pair, connect_pair(context, context));
      return deliver(pair, {.size_bytes = 1000});
    };
    const Result<void> used = use();
    if (used.has_error()) {
      fixture.monitor().report("in a child that was forked after loading: " +
                               used.error().message());
    }
    ::_exit(used.has_error() ? 1 : 0);
  }
  int status = -1;
  PLEXUS_TRY(expect(child > 0 && ::waitpid(child, &status, 0) == child, "cannot fork"));
  return expect(status == 0, "a child that was forked after loading cannot use it (status {})",
                status);
}

Result<void> closes_on_exec(const Context& context) {
  const Descriptors before = list_descriptors();
  PLEXUS_TRY(pair, connect_pair(context, context));
  PLEXUS_TRY(deliver(pair, {.size_bytes = 10}));
  for (const auto& [number, target] : list_descriptors()) {
    if (before.count(number) == 0) {
      PLEXUS_TRY(expect((::fcntl(number, F_GETFD) & FD_CLOEXEC) != 0,
                        "descriptor {} ({}) would stay open in a program that the host starts",
                        number, target));
    }
  }
  return ok();
}

constexpr CheckOptions kTwo = {.processes = 2};
constexpr const char* kRule = "plexus_net.h: the table moves bytes between hosts";
constexpr const char* kForkRule =
    "hosts fork: data loaders do; a connection belongs to the process that made it";

constexpr std::array kChecks = {
    Check{"process.short", "carries 2000 short messages to another process", kRule,
          messages_between<short_messages>, kTwo},
    Check{"process.long",
          "carries 64 MiB to another process",
          kRule,
          messages_between<long_messages>,
          {.processes = 2, .limit = seconds(40)}},
    Check{"process.mixed", "carries alternating sizes and tags to another process", kRule,
          messages_between<mixed_messages>, kTwo},
    Check{"process.ping_pong", "carries ping-pong messages between processes", kRule, ping_pong,
          kTwo},
    Check{"process.duplex", "carries long messages in both directions between processes", kRule,
          both_ways_at_once, kTwo},
    Check{"process.connections", "has 16 connections between two processes", kRule,
          many_connections, kTwo},
    Check{"process.group", "accepts grouped receives from another process",
          "plexus_net.h irecv: posts `count` buffers (1 .. recvs_max) as one request", grouped,
          kTwo},
    Check{"fork.between", "keeps working in the parent after a fork", kForkRule,
          on_pair<forks_between_messages>},
    Check{"fork.child", "can be used in a child that was forked after loading", kForkRule,
          used_in_a_child},
    Check{"fork.exec", "marks its descriptors close-on-exec", kForkRule,
          on_context<closes_on_exec>},
};

}  // namespace

CheckTable process_checks() { return kChecks; }

}  // namespace plexus::conformance
