// SPDX-License-Identifier: Apache-2.0
// Failures around a plugin: peers that die, stop or leave, exhausted descriptors, signals.
#include <algorithm>
#include <array>
#include <csignal>
#include <deque>
#include <fcntl.h>
#include <memory>
#include <sys/resource.h>
#include <sys/time.h>
#include <unistd.h>
#include <utility>

#include "tools/conformance/check.hpp"
#include "tools/conformance/leaks.hpp"
#include "tools/conformance/process_state.hpp"
#include "tools/conformance/traffic.hpp"

namespace plexus::conformance {
namespace {

/// Expects a network error, not a timeout.
Result<void> expect_failure(const Result<void>& result, const char* what) {
  PLEXUS_TRY(expect(result.has_error(), "{} succeeded", what));
  return expect(result.error().message().find("timed out after") == std::string::npos,
                "{} neither completed nor failed in bounded time", what);
}

Result<void> receiver_of_a_dead_peer(Fixture& fixture) {
  PLEXUS_TRY(net, Net::load(fixture));
  PLEXUS_TRY(context, Context::open(net));
  if (fixture.role() == 1) {
    PLEXUS_TRY(connect_to_peer(context));
    PLEXUS_TRY(fixture.peer().meet());
    fixture.die();
  }
  PLEXUS_TRY(recv, accept_from_peer(context));
  PLEXUS_TRY(fixture.peer().meet());
  PLEXUS_TRY(fixture.peer().wait_for_end());
  GuardedBuffer target(1000);
  Traffic traffic(fixture);
  PLEXUS_TRY(traffic.recv(recv, target));
  PLEXUS_TRY(expect_failure(traffic.finish(seconds(10)), "a receive from a dead process"));
  return target.expect_untouched();
}

Result<void> sender_to_a_dead_peer(Fixture& fixture) {
  PLEXUS_TRY(net, Net::load(fixture));
  PLEXUS_TRY(context, Context::open(net));
  if (fixture.role() == 1) {
    PLEXUS_TRY(accept_from_peer(context));
    PLEXUS_TRY(fixture.peer().meet());
    fixture.die();
  }
  PLEXUS_TRY(send, connect_to_peer(context));
  PLEXUS_TRY(fixture.peer().meet());
  PLEXUS_TRY(fixture.peer().wait_for_end());
  const Bytes message = make_message(longest_message(context, 1 << 20), 1);
  Traffic traffic(fixture);
  for (int i = 0; i < 64; ++i) {  // more than all buffers on the path can hold
    PLEXUS_TRY(traffic.send(send, message));
  }
  return expect_failure(traffic.finish(seconds(10)), "a send of 64 messages to a dead process");
}

Result<void> dies_amid_a_message(Fixture& fixture) {
  PLEXUS_TRY(net, Net::load(fixture));
  PLEXUS_TRY(context, Context::open(net));
  constexpr int kSent = 16;
  const Bytes message = make_message(longest_message(context, 8 << 20), 1);
  if (fixture.role() == 1) {
    PLEXUS_TRY(send, connect_to_peer(context));
    Traffic traffic(fixture);
    for (int i = 0; i < kSent; ++i) {
      PLEXUS_TRY(traffic.send(send, message));
    }
    while (traffic.posted() < 3) {
      PLEXUS_TRY(traffic.step());
    }
    fixture.die();
  }
  PLEXUS_TRY(recv, accept_from_peer(context));
  std::deque<GuardedBuffer> targets;
  Traffic traffic(fixture);
  for (int i = 0; i < kSent + 4; ++i) {  // short ones may all have been sent
    targets.emplace_back(message.size());
    PLEXUS_TRY(traffic.recv(recv, targets.back()));
  }
  return expect_failure(traffic.finish(seconds(10)), "a receive of messages whose sender died");
}

/// Runs both processes until the peer is dead and the connection is known to be broken.
struct Broken {
  Send send;
  Error first;
  std::array<std::byte, 16> data{};
  plexus_net_memory_t* memory = nullptr;  // registration of `data` from before the failure
};
Result<std::unique_ptr<Broken>> break_connection(Fixture& fixture, const Context& context) {
  PLEXUS_TRY(send, connect_to_peer(context));
  auto broken = std::make_unique<Broken>(Broken{std::move(send), {}, {}, nullptr});
  PLEXUS_TRY(memory, broken->send.register_memory(broken->data.data(), broken->data.size()));
  broken->memory = memory;
  PLEXUS_TRY(fixture.peer().meet());
  PLEXUS_TRY(fixture.peer().wait_for_end());
  const Bytes message = make_message(longest_message(context, 1 << 20), 1);
  Traffic traffic(fixture);
  for (int i = 0; i < 64; ++i) {
    PLEXUS_TRY(traffic.send(broken->send, message));
  }
  Result<void> result = traffic.finish(seconds(10));
  PLEXUS_TRY(expect_failure(result, "a send to a dead process"));
  broken->first = std::move(result).error();
  return broken;
}

template <Result<void> (*after)(Fixture&, const Context&, Broken&)>
Result<void> after_a_failure(Fixture& fixture) {
  PLEXUS_TRY(net, Net::load(fixture));
  PLEXUS_TRY(context, Context::open(net));
  if (fixture.role() == 1) {
    PLEXUS_TRY(accept_from_peer(context));
    PLEXUS_TRY(fixture.peer().meet());
    fixture.die();
  }
  PLEXUS_TRY(broken, break_connection(fixture, context));
  Result<void> result = after(fixture, context, *broken);
  deregister(net, broken->memory);
  return result;
}

Result<void> every_later_call(Fixture&, const Context&, Broken& broken) {
  for (int i = 0; i < 20; ++i) {
    plexus_net_request_t* request = nullptr;
    const int32_t code =
        broken.send.isend(broken.data.data(), broken.data.size(), 0, broken.memory, &request);
    PLEXUS_TRY(expect(code != PLEXUS_AGAIN, "isend returns PLEXUS_AGAIN on a failed connection"));
    if (code == PLEXUS_OK) {
      const int32_t tested = broken.send.test(request, nullptr);
      PLEXUS_TRY(expect(tested != PLEXUS_OK && tested != PLEXUS_AGAIN,
                        "a send over a failed connection returned {}", tested));
    }
  }
  return ok();
}

Result<void> one_sentence(Fixture& fixture, const Context&, Broken&) {
  PLEXUS_TRY(expect(fixture.monitor().last_failure_lines() == 1,
                    "the failure was explained by {} PLEXUS_LOG_ERROR lines, expected 1",
                    fixture.monitor().last_failure_lines()));
  const std::string text = fixture.monitor().last_failure();
  PLEXUS_TRY(expect(text.size() >= 10, "the reason of the failure is '{}'", text));
  return expect(text.find('\n') == std::string::npos, "the reason of a failure has two lines");
}

Result<void> context_lives_on(Fixture&, const Context& context, Broken& broken) {
  PLEXUS_TRY(pair, connect_pair(context, context));
  PLEXUS_TRY(deliver(pair, {.size_bytes = 5000}));
  deregister(broken.send.net(), std::exchange(broken.memory, nullptr));
  broken.send.close();
  PLEXUS_TRY(next, connect_pair(context, context));
  return deliver(next, {.size_bytes = 5000});
}

Result<void> says_that_the_peer_is_gone(Fixture&, const Context&, Broken& broken) {
  return expect(broken.first.message().find("code 6") != std::string::npos,
                "the death of the peer is not PLEXUS_REMOTE_ERROR: {}", broken.first.message());
}

Result<void> peer_closes(Pair& pair) {
  PLEXUS_TRY(deliver(pair, {.size_bytes = 100}));
  pair.send.close();
  GuardedBuffer target(100);
  Traffic traffic(*pair.recv.net().fixture);
  PLEXUS_TRY(traffic.recv(pair.recv, target));
  return expect_failure(traffic.finish(seconds(10)), "a receive whose sender closed");
}

Result<void> receiver_closes(Pair& pair) {
  pair.recv.close();
  const Bytes message = make_message(std::min<uint64_t>(60000, pair.send.message_bytes_max()), 1);
  Traffic traffic(*pair.send.net().fixture);
  for (int i = 0; i < 1000; ++i) {
    PLEXUS_TRY(traffic.send(pair.send, message));
  }
  return expect_failure(traffic.finish(seconds(10)),
                        "a send of 1000 messages to a peer that closed");
}

/// A receive whose sender has closed, sends whose receiver has closed, and a message that is too
/// long for its buffer. False: it did not fail in bounded time.
Result<bool> fail_transfer(const Context& context, int kind) {
  PLEXUS_TRY(pair, connect_pair(context, context));
  PLEXUS_TRY(deliver(pair, {.size_bytes = 100}));
  const Bytes message = make_message(longest_message(context, 60000), 1);
  GuardedBuffer target(kind == 2 ? message.size() - 1 : message.size());
  Traffic traffic(*context.net().fixture);
  if (kind == 0) {
    pair.send.close();
  } else if (kind == 1) {
    pair.recv.close();
  }
  if (kind != 1) {
    PLEXUS_TRY(traffic.recv(pair.recv, target));
  }
  constexpr int kMessages = 100;  // more than the buffers on the path hold
  for (int i = 0; i < (kind == 1 ? kMessages : kind - 1); ++i) {
    PLEXUS_TRY(traffic.send(pair.send, message));
  }
  const Result<void> result = traffic.finish(milliseconds(100));
  return result.has_error() &&
         result.error().message().find("timed out after") == std::string::npos;
}

Result<void> failures_leave_nothing(const Context& context) {
  std::vector<int> kinds;
  for (int kind = 0; kind < 3; ++kind) {
    PLEXUS_TRY(fails, fail_transfer(context, kind));
    if (fails) {
      kinds.push_back(kind);
    }
  }
  if (kinds.empty()) {
    return skip("no transfer fails here in bounded time");
  }
  const auto use = [&](int times) -> Result<void> {
    for (int i = 0; i < times; ++i) {
      PLEXUS_TRY(fail_transfer(context, kinds[static_cast<size_t>(i) % kinds.size()]));
    }
    return ok();
  };
  PLEXUS_TRY(use(6));
  const Holdings before;
  Result<void> memory =
      leaves_no_memory(*context.net().fixture,
                       {.use = use, .times = 200, .what = "failed transfers", .bytes_each = 32});
  PLEXUS_TRY(before.expect_nothing_more("200 transfers failed"));
  return memory;
}

Result<void> others_go_on(const Context& context) {
  PLEXUS_TRY(kept, connect_pair(context, context));
  PLEXUS_TRY(lost, connect_pair(context, context));
  lost.send.close();
  GuardedBuffer target(100);
  {
    Traffic traffic(*context.net().fixture);
    PLEXUS_TRY(traffic.recv(lost.recv, target));
    PLEXUS_TRY(expect_failure(traffic.finish(seconds(10)), "a receive whose sender closed"));
  }
  return deliver(kept, {.size_bytes = 60000});
}

Result<void> connector_dies(Fixture& fixture) {
  PLEXUS_TRY(net, Net::load(fixture));
  PLEXUS_TRY(context, Context::open(net));
  if (fixture.role() == 1) {
    PLEXUS_TRY(handle, fixture.peer().receive<NetHandle>());
    Send send = context.connect(handle);
    send.try_connect();
    fixture.die();
  }
  PLEXUS_TRY(listen, context.listen());
  PLEXUS_TRY(fixture.peer().send(listen.handle()));
  PLEXUS_TRY(fixture.peer().wait_for_end());
  return accept_after_quitters(context, listen);
}

Result<void> listener_dies(Fixture& fixture) {
  PLEXUS_TRY(net, Net::load(fixture));
  PLEXUS_TRY(context, Context::open(net));
  if (fixture.role() == 1) {
    PLEXUS_TRY(listen, context.listen());
    PLEXUS_TRY(fixture.peer().send(listen.handle()));
    PLEXUS_TRY(fixture.peer().meet());
    fixture.die();
  }
  PLEXUS_TRY(handle, fixture.peer().receive<NetHandle>());
  PLEXUS_TRY(fixture.peer().meet());
  PLEXUS_TRY(fixture.peer().wait_for_end());
  Send send = context.connect(handle);
  int32_t code = PLEXUS_AGAIN;
  return fixture.repeat_for(milliseconds(500), [&] {
    if (code == PLEXUS_AGAIN) {
      code = send.try_connect();
    }
    return expect(code != PLEXUS_OK, "connect to a dead process succeeded");
  });
}

/// The peer is stopped for a while: a slow peer is not dead.
Result<void> peer_stops(Fixture& fixture) {
  PLEXUS_TRY(net, Net::load(fixture));
  PLEXUS_TRY(context, Context::open(net));
  const std::vector<TestMessage> messages(
      100, TestMessage{.size_bytes = longest_message(context, 50000)});
  if (fixture.role() == 1) {
    PLEXUS_TRY(recv, accept_from_peer(context));
    PLEXUS_TRY(fixture.peer().send(::getpid()));
    PLEXUS_TRY(fixture.peer().receive<int>());
    PLEXUS_TRY(deliver_in(recv, messages));
    return fixture.peer().meet();
  }
  PLEXUS_TRY(send, connect_to_peer(context));
  PLEXUS_TRY(pid, fixture.peer().receive<pid_t>());
  std::deque<Bytes> sent;
  Traffic traffic(fixture);
  for (size_t i = 0; i < messages.size(); ++i) {
    sent.push_back(make_message(messages[i].size_bytes, i));
    PLEXUS_TRY(traffic.send(send, sent.back()));
  }
  ::kill(pid, SIGSTOP);
  PLEXUS_TRY(fixture.peer().send(1));
  Result<void> meanwhile = fixture.repeat_for(milliseconds(400), [&]() -> Result<void> {
    PLEXUS_TRY(traffic.step());
    return ok();
  });
  ::kill(pid, SIGCONT);
  PLEXUS_TRY(std::move(meanwhile));
  PLEXUS_TRY(traffic.finish());
  return fixture.peer().meet();
}

Result<void> no_descriptors_left(const Context& context) {
  PLEXUS_TRY(pair, connect_pair(context, context));
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  const rlimit small{std::min<rlim_t>(256, limit.rlim_max), limit.rlim_max};
  ::setrlimit(RLIMIT_NOFILE, &small);
  std::vector<int> fillers;
  for (int fd = ::open("/dev/null", O_RDONLY | O_CLOEXEC); fd >= 0;
       fd = ::open("/dev/null", O_RDONLY | O_CLOEXEC)) {
    fillers.push_back(fd);
  }
  bool is_refused = false;
  {
    auto listen = context.listen();
    is_refused = listen.has_error();
    if (listen.has_value()) {
      Send send = context.connect(listen.value().handle());
      for (int i = 0; i < 50 && !is_refused; ++i) {
        const int32_t code = send.try_connect();
        is_refused = code != PLEXUS_OK && code != PLEXUS_AGAIN;
      }
    }
  }
  const Result<void> alive = deliver(pair, {.size_bytes = 100});
  for (const int fd : fillers) {
    ::close(fd);
  }
  ::setrlimit(RLIMIT_NOFILE, &limit);
  PLEXUS_TRY(expect(alive.has_value(),
                    "an existing connection broke when no descriptors were free: {}",
                    alive.has_error() ? alive.error().message() : ""));
  PLEXUS_TRY(next, connect_pair(context, context));
  return deliver(next, {.size_bytes = 100});
}

extern "C" void count_signal(int) {}

Result<void> storm_of_signals(Pair& pair) {
  struct sigaction action {};
  action.sa_handler = &count_signal;  // NOLINT(*-union-access): POSIX; without SA_RESTART
  ::sigaction(SIGALRM, &action, nullptr);
  const itimerval often{{0, 500}, {0, 500}};
  ::setitimer(ITIMER_REAL, &often, nullptr);
  const std::vector<TestMessage> messages(300, TestMessage{.size_bytes = 30000});
  const Result<void> result = deliver(pair, messages);
  PLEXUS_TRY(context, Context::open(pair.send.net()));
  auto second = connect_pair(context, context);
  const itimerval never{};
  ::setitimer(ITIMER_REAL, &never, nullptr);
  PLEXUS_TRY(expect(result.has_value(), "messages failed under signals: {}",
                    result.has_error() ? result.error().message() : ""));
  return expect(second.has_value(), "connecting failed under signals");
}

constexpr CheckOptions kTwo = {.processes = 2, .limit = seconds(40)};
constexpr CheckOptions kTwoNative = {
    .processes = 2, .limit = seconds(40), .abi = CheckOptions::Abi::kNative};
constexpr const char* kDeathRule =
    "plexus_plugin.h PLEXUS_REMOTE_ERROR: the peer died or closed its end; a job must end in "
    "bounded time";
constexpr const char* kFailRule =
    "plexus_net.h: a connection that failed stays failed: every later call fails as well";
constexpr const char* kSignalRule =
    "plexus_net.h: no entry raises a signal, ends the process, or lets a C++ exception escape";

constexpr std::array kChecks = {
    Check{"fault.receiver", "fails a receive when the sender died", kDeathRule,
          receiver_of_a_dead_peer, kTwo},
    Check{"fault.sender", "fails a send when the receiver died", kDeathRule, sender_to_a_dead_peer,
          kTwo},
    Check{"fault.amid", "fails when the sender dies in the middle of a message", kDeathRule,
          dies_amid_a_message, kTwo},
    Check{"fault.again", "reports the failure again in every call", kFailRule,
          after_a_failure<every_later_call>, kTwoNative},
    Check{"fault.sentence", "explains a failure in one sentence",
          "plexus_plugin.h PLEXUS_LOG_ERROR: log one sentence (what, where, what to do)",
          after_a_failure<one_sentence>, kTwoNative},
    Check{"fault.code", "reports the death of a peer as PLEXUS_REMOTE_ERROR", kDeathRule,
          after_a_failure<says_that_the_peer_is_gone>, kTwoNative},
    Check{"fault.context", "makes new connections after a failure", kFailRule,
          after_a_failure<context_lives_on>, kTwo},
    Check{"fault.sender_closes", "fails a receive when the sender closed", kDeathRule,
          on_pair<peer_closes>},
    Check{"fault.receiver_closes", "fails a send when the receiver closed, without a signal",
          kSignalRule, on_pair<receiver_closes>},
    Check{"fault.leaves",
          "leaks nothing of transfers that failed",
          "plexus_net.h test: a failing code: the request is freed as well",
          on_context<failures_leave_nothing>,
          {.limit = seconds(40), .is_alone = true}},
    Check{"fault.others", "keeps the other connections when one fails", kFailRule,
          on_context<others_go_on>},
    Check{"fault.connector", "accepts after a process died connecting",
          "plexus_net.h accept: an attempt without the handle is refused, which is no failure",
          connector_dies, kTwo},
    Check{"fault.listener", "does not connect to a dead process", kDeathRule, listener_dies, kTwo},
    Check{"fault.stopped", "waits for a process that is suspended for a while",
          "a machine may be slow; that is no failure", peer_stops, kTwo},
    Check{"fault.descriptors", "reports that no descriptor is left, and recovers",
          "plexus_plugin.h PLEXUS_SYSTEM_ERROR: the operating system or the network refused",
          on_context<no_descriptors_left>},
    Check{"fault.signals", "works while signals interrupt its calls", kSignalRule,
          on_pair<storm_of_signals>},
};

}  // namespace

CheckTable fault_checks() { return kChecks; }

}  // namespace plexus::conformance
