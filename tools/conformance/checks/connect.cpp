// SPDX-License-Identifier: Apache-2.0
// connect and accept: state machines of calls that never block.
#include <algorithm>
#include <array>
#include <deque>
#include <thread>

#include "tools/conformance/check.hpp"
#include "tools/conformance/leaks.hpp"
#include "tools/conformance/pause.hpp"
#include "tools/conformance/process_state.hpp"
#include "tools/conformance/run_delay.hpp"
#include "tools/conformance/traffic.hpp"

namespace plexus::conformance {
namespace {

Result<void> carries(Pair& pair) { return deliver(pair, {.size_bytes = 100}); }

Result<void> inside_one_context(const Context& context) {
  PLEXUS_TRY(pair, connect_pair(context, context));
  return deliver(pair, {.size_bytes = 100});
}

Result<void> on_each_device(const Context& context) {
  for (uint32_t device = 0; device < context.devices(); ++device) {
    PLEXUS_TRY(pair, connect_pair(context, context, device));
    PLEXUS_TRY(deliver(pair, {.size_bytes = 100}));
  }
  return ok();
}

Result<void> connect_does_not_wait(const Context& context) {
  PLEXUS_TRY(listen, context.listen());
  Send send = context.connect(listen.handle());
  int32_t code = PLEXUS_AGAIN;
  PLEXUS_TRY(context.net().fixture->repeat_for(milliseconds(300), [&]() -> Result<void> {
    if (code == PLEXUS_AGAIN) {
      code = send.try_connect();
    }
    return ok();
  }));
  PLEXUS_TRY(expect(code == PLEXUS_OK || code == PLEXUS_AGAIN,
                    "connect failed with code {} before accept was called: {}", code,
                    context.net().fixture->monitor().last_failure()));
  Recv recv = listen.accept();
  bool is_connected = code == PLEXUS_OK;
  bool is_accepted = false;
  PLEXUS_TRY(context.net().fixture->wait_until("accept of a connection requested earlier", [&] {
    return progress(send, is_connected, recv, is_accepted);
  }));
  Pair pair{std::move(listen), std::move(send), std::move(recv)};
  return carries(pair);
}

Result<void> accept_does_not_wait(const Context& context) {
  PLEXUS_TRY(listen, context.listen());
  Recv recv = listen.accept();
  PLEXUS_TRY(context.net().fixture->repeat_for(milliseconds(300), [&] {
    const int32_t code = recv.try_accept();
    return expect(code == PLEXUS_AGAIN, "accept returned {} though no peer connects", code);
  }));
  Send send = context.connect(listen.handle());
  bool is_connected = false;
  bool is_accepted = false;
  PLEXUS_TRY(context.net().fixture->wait_until("a connect after a long accept", [&] {
    return progress(send, is_connected, recv, is_accepted);
  }));
  return ok();
}

Result<void> sets_send_at_once(const Context& context) {
  PLEXUS_TRY(listen, context.listen());
  Send send = context.connect(listen.handle());
  send.try_connect();
  return expect(send.raw() != nullptr, "`*send` is null after the first call of connect");
}

Result<void> keeps_send(const Context& context) {
  PLEXUS_TRY(listen, context.listen());
  Send send = context.connect(listen.handle());
  Recv recv = listen.accept();
  bool is_connected = send.try_connect() == PLEXUS_OK;
  const plexus_net_send_t* const first = send.raw();
  const NetHandle handle = send.handle();
  bool is_accepted = false;
  PLEXUS_TRY(context.net().fixture->wait_until(
      "connect", [&] { return progress(send, is_connected, recv, is_accepted); }));
  PLEXUS_TRY(expect(first == nullptr || send.raw() == first,
                    "a later call of connect changed the handle in `*send`"));
  return expect(
      std::equal(std::begin(handle.bytes), std::end(handle.bytes), std::begin(send.handle().bytes)),
      "connect wrote to the handle, which is const");
}

Result<void> gives_up(const Context& context) {
  {
    PLEXUS_TRY(listen, context.listen());
    Send warm = context.connect(listen.handle());
    warm.try_connect();
  }
  const Holdings before;
  for (int i = 0; i < 20; ++i) {
    PLEXUS_TRY(listen, context.listen());
    Send send = context.connect(listen.handle());
    Recv recv = listen.accept();
    for (int step = 0; step < i % 4; ++step) {
      if (send.try_connect() != PLEXUS_AGAIN) {
        break;
      }
    }
    if (recv.try_accept() == PLEXUS_OK) {
      continue;
    }
    send.close();  // while it is connecting
  }
  return before.expect_no_descriptors("20 connection attempts were abandoned");
}

Result<void> listener_survives_quitters(const Context& context) {
  PLEXUS_TRY(listen, context.listen());
  for (int i = 0; i < 3; ++i) {
    Send send = context.connect(listen.handle());
    if (send.try_connect() == PLEXUS_OK) {
      return skip("connect completes in one call here: there is nothing to abandon");
    }
  }
  return accept_after_quitters(context, listen);
}

Result<void> several_per_listen(const Context& context) {
  PLEXUS_TRY(listen, context.listen());
  std::deque<Send> sends;
  std::deque<Recv> recvs;
  for (int i = 0; i < 5; ++i) {
    sends.push_back(context.connect(listen.handle()));
    recvs.push_back(listen.accept());
    bool is_connected = false;
    bool is_accepted = false;
    PLEXUS_TRY(context.net().fixture->wait_until("another connection to one listen", [&] {
      return progress(sends.back(), is_connected, recvs.back(), is_accepted);
    }));
  }
  std::array<Bytes, 5> messages;
  std::deque<GuardedBuffer> targets;
  Traffic traffic(*context.net().fixture);
  for (size_t i = 0; i < sends.size(); ++i) {
    messages[i] = make_message(1000, i);
    targets.emplace_back(1000);
    PLEXUS_TRY(traffic.recv(recvs[i], targets[i]));
    PLEXUS_TRY(traffic.send(sends[i], messages[i]));
  }
  PLEXUS_TRY(traffic.finish());
  for (size_t i = 0; i < targets.size(); ++i) {
    PLEXUS_TRY(targets[i].expect_message(messages[i]));
  }
  return ok();
}

Result<void> outlives_listen(Pair& pair) {
  pair.listen.close();
  return deliver(pair, {.size_bytes = 5000});
}

Result<void> both_directions(Fixture& fixture) {
  PLEXUS_TRY(net, Net::load(fixture));
  PLEXUS_TRY(first, Context::open(net, 1));
  PLEXUS_TRY(second, Context::open(net, 1));
  PLEXUS_TRY(there, first.listen());
  PLEXUS_TRY(back, second.listen());
  Send send_there = second.connect(there.handle());
  Recv recv_there = there.accept();
  Send send_back = first.connect(back.handle());
  Recv recv_back = back.accept();
  std::array<bool, 4> done{};
  PLEXUS_TRY(
      fixture.wait_until("two connections that are made concurrently", [&]() -> Result<bool> {
        PLEXUS_TRY(is_there, progress(send_there, done[0], recv_there, done[1]));
        PLEXUS_TRY(is_back, progress(send_back, done[2], recv_back, done[3]));
        return is_there && is_back;
      }));
  Pair forth{std::move(there), std::move(send_there), std::move(recv_there)};
  PLEXUS_TRY(carries(forth));
  Pair home{std::move(back), std::move(send_back), std::move(recv_back)};
  return carries(home);
}

Result<void> interleaved(const Context& context) {
  struct Making {
    Pair pair;
    bool is_connected = false;
    bool is_accepted = false;
  };
  std::deque<Making> all;
  for (int i = 0; i < 16; ++i) {
    PLEXUS_TRY(listen, context.listen());
    Send send = context.connect(listen.handle());
    Recv recv = listen.accept();
    all.push_back({{std::move(listen), std::move(send), std::move(recv)}});
  }
  PLEXUS_TRY(context.net().fixture->wait_until("16 connections in turns", [&]() -> Result<bool> {
    bool is_done = true;
    for (auto& [pair, is_connected, is_accepted] : all) {
      PLEXUS_TRY(is_made, progress(pair.send, is_connected, pair.recv, is_accepted));
      is_done = is_done && is_made;
    }
    return is_done;
  }));
  for (Making& each : all) {
    PLEXUS_TRY(carries(each.pair));
  }
  return ok();
}

Result<void> many(const Context& context) {
  const uint32_t count = std::min(64u, context.properties().comms_max);
  std::deque<Pair> pairs;
  for (uint32_t i = 0; i < count; ++i) {
    PLEXUS_TRY(pair, connect_pair(context, context));
    pairs.push_back(std::move(pair));
  }
  for (Pair& pair : pairs) {
    PLEXUS_TRY(deliver(pair, {.size_bytes = 333}));
  }
  return ok();
}

Result<void> again_and_again(const Context& context) {
  const auto use = [&](int times) -> Result<void> {
    for (int i = 0; i < times; ++i) {
      PLEXUS_TRY(pair, connect_pair(context, context));
      PLEXUS_TRY(deliver(pair, {.size_bytes = 10}));
    }
    return ok();
  };
  PLEXUS_TRY(use(2));
  const Holdings before;
  PLEXUS_TRY(use(60));
  return before.expect_nothing_more("60 connections were made and closed");
}

/// A connection to a listen that is closed: before the first call of connect, or after it. False:
/// it did not fail within `limit`, or was made before the listen closed.
Result<bool> try_to_fail(const Context& context, bool is_early, milliseconds limit) {
  PLEXUS_TRY(listen, context.listen());
  Send send = context.connect(listen.handle());
  int32_t code = is_early ? PLEXUS_AGAIN : send.try_connect();
  listen.close();
  FairDeadline deadline(limit);
  const Pause pause;
  while (code == PLEXUS_AGAIN && !deadline.is_over()) {
    code = send.try_connect();
    pause.rest();
  }
  return code != PLEXUS_OK && code != PLEXUS_AGAIN;
}

Result<void> failed_connects_leave_nothing(const Context& context) {
  Fixture& fixture = *context.net().fixture;
  constexpr auto kLimit = milliseconds(1000);
  PLEXUS_TRY(fails, try_to_fail(context, true, kLimit));
  if (!fails) {
    return skip("a connect to a closed listen does not fail within {} ms", kLimit.count());
  }
  PLEXUS_TRY(fails_late, try_to_fail(context, false, kLimit));
  const auto use = [&](int times) -> Result<void> {
    for (int i = 0; i < times; ++i) {
      PLEXUS_TRY(try_to_fail(context, !fails_late || i % 2 == 0, kLimit));
    }
    return ok();
  };
  PLEXUS_TRY(use(4));
  const Holdings before;
  Result<void> memory = leaves_no_memory(
      fixture, {.use = use, .times = 200, .what = "failed connects", .bytes_each = 32});
  PLEXUS_TRY(before.expect_nothing_more("200 connects to a closed listen failed"));
  return memory;
}

Result<void> used_by_another_thread(Pair& pair) {
  PLEXUS_TRY(deliver(pair, {.size_bytes = 100}));
  Result<void> result = ok();
  std::thread([&] { result = deliver(pair, {.size_bytes = 100000}); }).join();
  PLEXUS_TRY(std::move(result));
  return deliver(pair, {.size_bytes = 200});
}

Result<void> to_nobody(const Context& context) {
  NetHandle handle{};
  {
    PLEXUS_TRY(listen, context.listen());
    handle = listen.handle();
  }
  Send send = context.connect(handle);
  int32_t code = PLEXUS_AGAIN;
  return context.net().fixture->repeat_for(milliseconds(500), [&] {
    if (code == PLEXUS_AGAIN) {
      code = send.try_connect();
    }
    return expect(code != PLEXUS_OK, "connect succeeded though the listen was closed");
  });
}

Result<void> garbage_handle(const Context& context) {
  for (const uint8_t fill : {uint8_t{0}, uint8_t{0x5A}, uint8_t{0xFF}}) {
    NetHandle handle{};
    std::fill(std::begin(handle.bytes), std::end(handle.bytes), fill);
    Send send = context.connect(handle);
    for (int i = 0; i < 20; ++i) {
      const int32_t code = send.try_connect();
      PLEXUS_TRY(expect(code != PLEXUS_OK, "connect succeeded with a handle of bytes {:#x}", fill));
      if (code != PLEXUS_AGAIN) {
        break;
      }
    }
  }
  PLEXUS_TRY(pair, connect_pair(context, context));
  return deliver(pair, {.size_bytes = 10});
}

Result<void> one_out(Send& send) {
  const TestMessage test_message{.size_bytes = 1000};
  return deliver_out(send, {&test_message, 1});
}
Result<void> one_in(Recv& recv) {
  const TestMessage test_message{.size_bytes = 1000};
  return deliver_in(recv, {&test_message, 1});
}

constexpr const char* kConnectRule =
    "plexus_net.h connect: PLEXUS_AGAIN until connected, which may require accept";
constexpr const char* kAcceptRule =
    "plexus_net.h accept: accepts one connection, in the manner of connect; several one after the "
    "other are allowed";
constexpr const char* kCloseRule =
    "plexus_net.h connect: a `*send` that is not null is the caller's to close, giving up while "
    "it is connecting included";
constexpr CheckOptions kNative = {.abi = CheckOptions::Abi::kNative};

constexpr std::array kChecks = {
    Check{"connect.pair", "connects two contexts", kConnectRule, on_pair<carries>},
    Check{"connect.self", "connects a context with itself", kConnectRule,
          on_context<inside_one_context>},
    Check{"connect.processes",
          "connects two processes",
          kConnectRule,
          on_processes<one_out, one_in>,
          {.processes = 2}},
    Check{"connect.devices", "connects on each device", kConnectRule, on_context<on_each_device>},
    Check{"connect.no_wait", "connect returns though no peer accepts", kConnectRule,
          on_context<connect_does_not_wait>},
    Check{"accept.no_wait", "accept returns though no peer connects", kAcceptRule,
          on_context<accept_does_not_wait>},
    Check{"connect.sets_send", "sets the handle in the first call",
          "plexus_net.h connect: first call with `*send` null; the plugin sets it at once",
          on_context<sets_send_at_once>, kNative},
    Check{"connect.keeps_send", "keeps handle and arguments over retries",
          "plexus_net.h connect: continues in later calls with the same arguments",
          on_context<keeps_send>, kNative},
    Check{"connect.give_up", "can be abandoned while connecting, without a leak", kCloseRule,
          on_context<gives_up>, kNative},
    Check{"accept.quitters", "accepts after other attempts were abandoned",
          "plexus_net.h accept: an attempt without the handle is refused, which is no failure",
          on_context<listener_survives_quitters>, kNative},
    Check{"accept.several", "accepts several connections of one listen", kAcceptRule,
          on_context<several_per_listen>},
    Check{"connect.outlives_listen", "keeps a connection after its listen is closed",
          "plexus_net.h accept: the connection outlives `listen`", on_pair<outlives_listen>},
    Check{"connect.both_ways", "connects in both directions at once", kConnectRule,
          both_directions},
    Check{"connect.interleaved", "makes 16 connections in turns", kConnectRule,
          on_context<interleaved>},
    Check{"connect.many", "supports 64 connections, or as many as it reports",
          "plexus_net.h comms_max: connections the device can have", on_context<many>},
    Check{"connect.leaves", "leaks nothing of closed connections",
          "plexus_net.h: connect .. close_send, accept .. close_recv", on_context<again_and_again>},
    Check{"connect.fails",
          "leaks nothing of connects that failed",
          "plexus_net.h connect: the caller closes a `*send` that is not null, whatever the result",
          on_context<failed_connects_leave_nothing>,
          {.limit = seconds(40), .is_alone = true}},
    Check{"connect.thread", "lets another thread use a connection",
          "plexus_net.h Threads: one thread at a time, not always the same",
          on_pair<used_by_another_thread>},
    Check{"connect.nobody", "does not connect to a closed listen", kConnectRule,
          on_context<to_nobody>},
    Check{"connect.garbage", "survives invalid handles",
          "plexus_net.h: no entry raises a signal, ends the process", on_context<garbage_handle>,
          kNative},
};

}  // namespace

CheckTable connect_checks() { return kChecks; }

}  // namespace plexus::conformance
