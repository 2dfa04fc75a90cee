// SPDX-License-Identifier: Apache-2.0
// Requests: lifetime, number, duration of calls, and messages that do not fit.
#include <array>
#include <deque>

#include "tools/conformance/check.hpp"
#include "tools/conformance/traffic.hpp"

namespace plexus::conformance {
namespace {

/// Posts a receive; repeats the call while the plugin returns PLEXUS_AGAIN.
Result<plexus_net_request_t*> post(Pair& pair, const plexus_net_buffer_t& buffer) {
  plexus_net_request_t* request = nullptr;
  PLEXUS_TRY(pair.recv.net().stand->wait_until("irecv", [&]() -> Result<bool> {
    const int32_t code = pair.recv.irecv({&buffer, 1}, &request);
    if (code != PLEXUS_OK && code != PLEXUS_AGAIN) {
      return failed(pair.recv.net().stand->monitor(), "irecv", code);
    }
    return code == PLEXUS_OK;
  }));
  return request;
}

Result<uint32_t> requests_max(Pair& pair) {
  PLEXUS_TRY(context, Context::open(pair.send.net()));
  return std::min(context.properties().requests_max, 1024u);
}

/// Messages of one word in flight, as many as are possible.
struct Words {
  explicit Words(uint32_t count) : targets(count, 0), sources(count) {
    for (uint32_t i = 0; i < count; ++i) {
      sources[i] = 1000 + i;
    }
  }
  [[nodiscard]] uint32_t count() const { return static_cast<uint32_t>(sources.size()); }
  [[nodiscard]] size_t size_bytes() const { return sources.size() * sizeof(uint64_t); }
  std::vector<uint64_t> targets;
  std::vector<uint64_t> sources;
  std::vector<plexus_net_request_t*> received;
  std::vector<plexus_net_request_t*> sent;
};

/// Tests requests in the order of posting, as NCCL does; true when `done` is all.
template <class End>
Result<bool> test_in_order(End& end,
                           const std::vector<plexus_net_request_t*>& requests,
                           uint32_t count,
                           uint32_t& done,
                           bool with_sizes) {
  for (uint64_t size_bytes = 0; done < requests.size(); ++done) {
    const int32_t code = end.test(requests[done], with_sizes ? &size_bytes : nullptr);
    if (code == PLEXUS_AGAIN) {
      break;
    }
    PLEXUS_TRY(expect(code == PLEXUS_OK, "request {} of {} failed: {}", done, count,
                      end.net().stand->monitor().last_failure()));
  }
  return done == count;
}

/// Receives and sends of one word each, with `count` in flight.
Result<void> fill(Pair& pair, uint32_t count, bool with_sizes = true) {
  Words words(count);
  PLEXUS_TRY(into, pair.recv.register_memory(words.targets.data(), words.size_bytes()));
  PLEXUS_TRY(from, pair.send.register_memory(words.sources.data(), words.size_bytes()));
  for (uint64_t& target : words.targets) {
    PLEXUS_TRY(request, post(pair, {&target, sizeof target, into, 0, 0}));
    words.received.push_back(request);
  }
  uint32_t received = 0;
  uint32_t sent = 0;
  PLEXUS_TRY(pair.send.net().stand->wait_until(
      "as many requests as requests_max allows", [&]() -> Result<bool> {
        for (int32_t posted = PLEXUS_OK; posted == PLEXUS_OK && words.sent.size() < count;) {
          plexus_net_request_t* request = nullptr;
          const int32_t code = pair.send.isend(&words.sources[words.sent.size()], sizeof(uint64_t),
                                               0, from, &request);
          PLEXUS_TRY(expect(code == PLEXUS_OK || code == PLEXUS_AGAIN, "isend {} of {} failed: {}",
                            words.sent.size() + 1, count,
                            pair.send.net().stand->monitor().last_failure()));
          if (code == PLEXUS_OK) {
            words.sent.push_back(request);
          }
          posted = code;
        }
        PLEXUS_TRY(has_received,
                   test_in_order(pair.recv, words.received, count, received, with_sizes));
        PLEXUS_TRY(has_sent, test_in_order(pair.send, words.sent, count, sent, with_sizes));
        return has_received && has_sent;
      }));
  deregister(pair.recv.net(), into);
  deregister(pair.send.net(), from);
  return expect(words.targets == words.sources,
                "the messages of {} concurrent requests arrived corrupted", count);
}

Result<void> as_many_as_it_says(Pair& pair) {
  PLEXUS_TRY(most, requests_max(pair));
  return fill(pair, most);
}

Result<void> distinct_while_alive(Pair& pair) {
  std::array<uint64_t, 8> targets{};
  PLEXUS_TRY(into, pair.recv.register_memory(targets.data(), sizeof targets));
  std::vector<plexus_net_request_t*> all;
  for (uint64_t& target : targets) {
    PLEXUS_TRY(request, post(pair, {&target, sizeof target, into, 0, 0}));
    for (const plexus_net_request_t* other : all) {
      PLEXUS_TRY(expect(other != request, "two receives in flight have the same request"));
    }
    all.push_back(request);
  }
  deregister(pair.recv.net(), into);
  return ok();
}

Result<void> full_queue(Pair& pair) {
  // More receives than the queue holds: the plugin returns PLEXUS_AGAIN, or accepts more.
  PLEXUS_TRY(most, requests_max(pair));
  std::vector<uint64_t> targets(size_t{2} * most);
  PLEXUS_TRY(into, pair.recv.register_memory(targets.data(), targets.size() * sizeof(uint64_t)));
  uint32_t posted = 0;
  std::vector<plexus_net_request_t*> requests;
  for (uint32_t tries = 0; tries < 8 * most && posted < targets.size(); ++tries) {
    plexus_net_request_t* request = nullptr;
    const plexus_net_buffer_t buffer{&targets[posted], sizeof(uint64_t), into, 0, 0};
    const int32_t code = pair.recv.irecv({&buffer, 1}, &request);
    PLEXUS_TRY(expect(code == PLEXUS_OK || code == PLEXUS_AGAIN, "receive number {} failed: {}",
                      posted + 1, pair.recv.net().stand->monitor().last_failure()));
    if (code == PLEXUS_OK) {
      requests.push_back(request);
      ++posted;
    }
  }
  PLEXUS_TRY(expect(posted >= most, "it accepted {} receives, requests_max is {}", posted, most));
  // Each accepted receive gets its message; refused ones must leave nothing behind.
  uint64_t source = 0;
  PLEXUS_TRY(from, pair.send.register_memory(&source, sizeof source));
  for (uint32_t i = 0; i < posted; ++i) {
    source = 500 + i;
    plexus_net_request_t* sent = nullptr;
    bool is_sent = false;
    bool is_received = false;
    PLEXUS_TRY(pair.send.net().stand->wait_until(
        "a message for each accepted receive", [&]() -> Result<bool> {
          if (sent == nullptr) {
            pair.send.isend(&source, sizeof source, 0, from, &sent);
          } else if (!is_sent) {
            is_sent = pair.send.test(sent, nullptr) == PLEXUS_OK;
          }
          if (!is_received) {
            is_received = pair.recv.test(requests[i], nullptr) == PLEXUS_OK;
          }
          return is_sent && is_received;
        }));
    PLEXUS_TRY(expect(targets[i] == source, "message {} was received into another buffer", i));
  }
  deregister(pair.send.net(), from);
  deregister(pair.recv.net(), into);
  return ok();
}

Result<void> flood(Pair& pair) {
  // No receives: isend accepts what it has space for, then returns PLEXUS_AGAIN, and never waits.
  PLEXUS_TRY(most, requests_max(pair));
  PLEXUS_TRY(context, Context::open(pair.send.net()));
  const Bytes message = make_message(longest_message(context, 60000), 3);
  PLEXUS_TRY(from, pair.send.register_memory(message.data(), message.size()));
  std::deque<plexus_net_request_t*> sent;
  uint32_t refused = 0;
  uint32_t taken = 0;
  constexpr size_t kQueues = 16;  // a plugin may accept more than it promises
  while (refused < 200 && sent.size() < kQueues * most) {
    plexus_net_request_t* request = nullptr;
    const int32_t code = pair.send.isend(message.data(), message.size(), 0, from, &request);
    PLEXUS_TRY(expect(code == PLEXUS_OK || code == PLEXUS_AGAIN, "isend number {} failed: {}",
                      taken + 1, pair.send.net().stand->monitor().last_failure()));
    refused += code == PLEXUS_AGAIN ? 1 : 0;
    if (code == PLEXUS_OK) {
      sent.push_back(request);
      ++taken;
    }
  }
  for (uint32_t i = 0; i < taken; ++i) {
    Room room(message.size());
    Traffic traffic(*pair.send.net().stand);
    PLEXUS_TRY(traffic.recv(pair.recv, room));
    PLEXUS_TRY(pair.send.net().stand->wait_until(
        "the delivery of many queued messages", [&]() -> Result<bool> {
          if (!sent.empty() && pair.send.test(sent.front(), nullptr) == PLEXUS_OK) {
            sent.pop_front();
          }
          return traffic.step();
        }));
    PLEXUS_TRY(room.expect_message(message));
  }
  PLEXUS_TRY(
      pair.send.net().stand->wait_until("the sends of many queued messages", [&]() -> Result<bool> {
        if (!sent.empty() && pair.send.test(sent.front(), nullptr) == PLEXUS_OK) {
          sent.pop_front();
        }
        return sent.empty();
      }));
  deregister(pair.send.net(), from);
  return ok();
}

Result<void> recycled(Pair& pair) {
  for (int i = 0; i < 40; ++i) {
    PLEXUS_TRY(fill(pair, 8));
  }
  const std::vector<TestMessage> messages(3000, TestMessage{.size_bytes = 16});
  return deliver(pair, messages);
}

Result<void> newest_first(Pair& pair) {
  std::array<uint64_t, 8> targets{};
  std::array<uint64_t, 8> sources = {1, 2, 3, 4, 5, 6, 7, 8};
  PLEXUS_TRY(into, pair.recv.register_memory(targets.data(), sizeof targets));
  PLEXUS_TRY(from, pair.send.register_memory(sources.data(), sizeof sources));
  std::array<plexus_net_request_t*, 8> received{};
  std::array<plexus_net_request_t*, 8> sent{};
  Stand& stand = *pair.send.net().stand;
  for (size_t i = 0; i < 8; ++i) {
    PLEXUS_TRY(request, post(pair, {&targets[i], sizeof(uint64_t), into, 0, 0}));
    received[i] = request;
  }
  for (size_t i = 0; i < 8; ++i) {
    PLEXUS_TRY(stand.wait_until("isend", [&]() -> Result<bool> {
      return pair.send.isend(&sources[i], sizeof(uint64_t), 0, from, &sent[i]) == PLEXUS_OK;
    }));
  }
  for (size_t i = 8; i-- > 0;) {  // only this one is tested until it is done
    bool is_sent = false;
    PLEXUS_TRY(stand.wait_until("the newest request, tested alone", [&]() -> Result<bool> {
      const bool tests_send = !is_sent;
      const int32_t code =
          tests_send ? pair.send.test(sent[i], nullptr) : pair.recv.test(received[i], nullptr);
      if (code != PLEXUS_OK && code != PLEXUS_AGAIN) {
        return failed(stand.monitor(), "test of the newest request", code);
      }
      is_sent = is_sent || code == PLEXUS_OK;
      return !tests_send && code == PLEXUS_OK;
    }));
  }
  deregister(pair.recv.net(), into);
  deregister(pair.send.net(), from);
  return expect(targets == sources, "messages arrived in other buffers");
}

/// Long and short messages together, the youngest tested first.
Result<void> any_order(Pair& pair) {
  PLEXUS_TRY(context, Context::open(pair.send.net()));
  std::vector<TestMessage> messages;
  for (size_t i = 0; i < 40; ++i) {
    messages.push_back({.size_bytes = i % 2 == 0 ? longest_message(context, 200000 + i) : 1 + i});
  }
  return deliver(pair, messages, Testing::kAll);
}

Result<void> sizes_may_be_null(Pair& pair) { return fill(pair, 4, false); }

Result<void> size_is_told_when_done(Pair& pair) {
  uint64_t target = 0;
  PLEXUS_TRY(into, pair.recv.register_memory(&target, sizeof target));
  PLEXUS_TRY(request, post(pair, {&target, sizeof target, into, 0, 0}));
  uint64_t told = 77;
  for (int i = 0; i < 100; ++i) {
    PLEXUS_TRY(expect(pair.recv.test(request, &told) == PLEXUS_AGAIN && told == 77,
                      "test wrote a size though the request is not complete"));
  }
  deregister(pair.recv.net(), into);
  return ok();
}

Result<void> too_long(Pair& pair) {
  Room room(100);
  const Bytes message = make_message(101, 1);
  Traffic traffic(*pair.send.net().stand);
  PLEXUS_TRY(traffic.recv(pair.recv, room));
  PLEXUS_TRY(traffic.send(pair.send, message));
  const Result<void> result = traffic.finish(milliseconds(3000));
  PLEXUS_TRY(
      expect(result.has_error(), "a message of 101 bytes was received into a buffer of 100"));
  PLEXUS_TRY(expect(result.error().message().find("timed out after") == std::string::npos,
                    "a receive that is too short for its message neither completes nor fails"));
  return room.expect_message({room.data(), room.size_bytes()});
}

Result<void> failed_stays_failed(Pair& pair) {
  Room room(10);
  Room other(1000);
  const Bytes message = make_message(1000, 1);
  PLEXUS_TRY(into, pair.recv.register_memory(other.data(), other.size_bytes()));
  Traffic traffic(*pair.send.net().stand);
  PLEXUS_TRY(traffic.recv(pair.recv, room));
  PLEXUS_TRY(traffic.send(pair.send, message));
  const Result<void> result = traffic.finish(milliseconds(3000));
  PLEXUS_TRY(
      expect(result.has_error(), "a message of 1000 bytes was received into a buffer of 10"));
  const plexus_net_buffer_t buffer{other.data(), other.size_bytes(), into, 0, 0};
  Result<void> again = pair.recv.net().stand->wait_until("a failure", [&]() -> Result<bool> {
    plexus_net_request_t* request = nullptr;
    const int32_t posted = pair.recv.irecv({&buffer, 1}, &request);
    if (posted != PLEXUS_OK) {
      return posted != PLEXUS_AGAIN;
    }
    for (int i = 0; i < 1000; ++i) {
      const int32_t code = pair.recv.test(request, nullptr);
      PLEXUS_TRY(expect(code != PLEXUS_OK, "a receive of a failed connection succeeded"));
      if (code != PLEXUS_AGAIN) {
        return true;
      }
    }
    return wrong("a receive of a failed connection never completes");
  });
  deregister(pair.recv.net(), into);
  PLEXUS_TRY(std::move(again));
  return other.expect_untouched();
}

// ---- time ----

/// The calls of `place` are fast, independent of the machine's other load.
Result<void> is_quick(Monitor& monitor, Place place) {
  constexpr auto kMedian = std::chrono::milliseconds(5);
  constexpr auto kLongest = std::chrono::seconds(1);
  const Monitor::Times times = monitor.times(place);
  PLEXUS_TRY(
      expect(times.calls >= 8, "{} was called only {} times", place_name(place), times.calls));
  PLEXUS_TRY(expect(times.median <= kMedian, "every second call of {} takes {} us or more",
                    place_name(place), times.median.count() / 2000));
  return expect(times.longest <= kLongest, "a call of {} took {} ms", place_name(place),
                times.longest.count() / 1'000'000);
}

template <Place... kPlaces>
Result<void> quick_while_waiting(Pair& pair) {
  Monitor& monitor = pair.send.net().stand->monitor();
  monitor.measure_this_thread();
  const std::vector<TestMessage> messages(200, TestMessage{.size_bytes = 2000});
  PLEXUS_TRY(deliver(pair, messages));
  Room room(1000);
  Traffic traffic(*pair.send.net().stand);
  PLEXUS_TRY(traffic.recv(pair.recv, room));
  PLEXUS_TRY(traffic.settle(milliseconds(200)));
  for (const Place place : {kPlaces...}) {
    PLEXUS_TRY(is_quick(monitor, place));
  }
  return ok();
}

Result<void> quick_connections(const Context& context) {
  Monitor& monitor = context.net().stand->monitor();
  monitor.measure_this_thread();
  for (int i = 0; i < 16; ++i) {
    PLEXUS_TRY(pair, connect_pair(context, context));
    pair.send.close();
    pair.recv.close();
  }
  for (const Place place : {Place::kListen, Place::kConnect, Place::kAccept, Place::kCloseSend,
                            Place::kCloseRecv, Place::kCloseListen}) {
    PLEXUS_TRY(is_quick(monitor, place));
  }
  return ok();
}

constexpr const char* kLimitRule =
    "plexus_net.h requests_max: requests in flight per connection, at least 8";
constexpr const char* kAgainRule =
    "plexus_net.h isend: PLEXUS_AGAIN: queue full or peer not ready, nothing started, call again";
constexpr const char* kTestRule =
    "plexus_net.h test: PLEXUS_OK = done; the request is freed and must not be tested again";
constexpr const char* kBlockRule =
    "plexus_net.h: no entry blocks, except where \"may take long\" is stated";
constexpr const char* kFailRule =
    "plexus_net.h: a connection that failed stays failed: every later call fails as well, and "
    "none of its buffers is accessed again";

constexpr std::array kChecks = {
    Check{"request.limit", "accepts requests_max receives and sends at once", kLimitRule,
          on_pair<as_many_as_it_says>},
    Check{"request.distinct", "returns a different handle for each request in flight", kTestRule,
          on_pair<distinct_while_alive>},
    Check{"request.full", "returns PLEXUS_AGAIN when the queue of receives is full", kAgainRule,
          on_pair<full_queue>},
    Check{"request.flood",
          "returns PLEXUS_AGAIN when no receive is posted, and loses nothing",
          kAgainRule,
          on_pair<flood>,
          {.limit = seconds(40)}},
    Check{"request.recycled", "reuses requests for thousands of messages", kTestRule,
          on_pair<recycled>},
    Check{"request.newest_first", "completes the newest request though no other is tested",
          "plexus_net.h test: advances and tests (plugin-api: in any order)",
          on_pair<newest_first>},
    Check{"request.any_order",
          "may be tested in any order",
          "plexus_net.h test: advances and tests (plugin-api: in any order)",
          on_pair<any_order>,
          {.limit = seconds(40)}},
    Check{"request.sizes_null", "accepts a null pointer for sizes",
          "plexus_net.h test: `sizes_bytes`, when not null", on_pair<sizes_may_be_null>},
    Check{"request.sizes_done", "writes sizes only when the request is complete",
          "plexus_net.h: out parameters are written only on PLEXUS_OK",
          on_pair<size_is_told_when_done>},
    Check{"request.too_long", "fails when a message is longer than its buffer",
          "plexus_net.h size_bytes: a longer one fails the connection", on_pair<too_long>},
    Check{"request.failed",
          "stays failed, and no longer accesses any buffer",
          kFailRule,
          on_pair<failed_stays_failed>,
          {.abi = CheckOptions::Abi::kNative}},
    Check{"time.data",
          "isend, irecv and test return at once",
          kBlockRule,
          on_pair<quick_while_waiting<Place::kIsend, Place::kIrecv, Place::kTest>>,
          {.is_alone = true}},
    Check{"time.connect",
          "listen, connect, accept and close return at once",
          kBlockRule,
          on_context<quick_connections>,
          {.is_alone = true}},
};

}  // namespace

CheckTable request_checks() { return kChecks; }

}  // namespace plexus::conformance
