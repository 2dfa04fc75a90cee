// SPDX-License-Identifier: Apache-2.0
// Requests: lifetime, number, and messages that do not fit.
#include <algorithm>
#include <array>
#include <deque>

#include "tools/conformance/check.hpp"
#include "tools/conformance/traffic.hpp"

namespace plexus::conformance {
namespace {

/// Posts a receive; repeats the call while the plugin returns PLEXUS_AGAIN.
Result<plexus_net_request_t*> post(Pair& pair, const plexus_net_buffer_t& buffer) {
  plexus_net_request_t* request = nullptr;
  PLEXUS_TRY(pair.recv.net().fixture->wait_until("irecv", [&]() -> Result<bool> {
    const int32_t code = pair.recv.irecv({&buffer, 1}, &request);
    if (code != PLEXUS_OK && code != PLEXUS_AGAIN) {
      return failed(pair.recv.net().fixture->monitor(), "irecv", code);
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
                      end.net().fixture->monitor().last_failure()));
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
    PLEXUS_TRY(expect(
        std::find(words.received.begin(), words.received.end(), request) == words.received.end(),
        "two receives in flight have the same request"));
    words.received.push_back(request);
  }
  uint32_t received = 0;
  uint32_t sent = 0;
  PLEXUS_TRY(pair.send.net().fixture->wait_until(
      [&] {
        return fmt::format("{} of {} messages in flight are posted, {} sends and {} receives done",
                           words.sent.size(), count, sent, received);
      },
      [&]() -> Result<bool> {
        for (int32_t posted = PLEXUS_OK; posted == PLEXUS_OK && words.sent.size() < count;) {
          plexus_net_request_t* request = nullptr;
          const int32_t code = pair.send.isend(&words.sources[words.sent.size()], sizeof(uint64_t),
                                               0, from, &request);
          PLEXUS_TRY(expect(code == PLEXUS_OK || code == PLEXUS_AGAIN, "isend {} of {} failed: {}",
                            words.sent.size() + 1, count,
                            pair.send.net().fixture->monitor().last_failure()));
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

Result<void> distinct_while_alive(Pair& pair) { return fill(pair, 8); }

/// After calls that the plugin refused: it has as many requests as before.
Result<void> fill_again(Pair& pair, uint32_t count) {
  auto filled = fill(pair, count);
  return filled.has_value()
             ? std::move(filled)
             : std::move(filled).error().with_context("after calls that returned PLEXUS_AGAIN");
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
                      posted + 1, pair.recv.net().fixture->monitor().last_failure()));
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
    PLEXUS_TRY(pair.send.net().fixture->wait_until(
        [&] { return fmt::format("message {} of {} accepted receives", i + 1, posted); },
        [&]() -> Result<bool> {
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
  return fill_again(pair, most);
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
                      taken + 1, pair.send.net().fixture->monitor().last_failure()));
    refused += code == PLEXUS_AGAIN ? 1 : 0;
    if (code == PLEXUS_OK) {
      sent.push_back(request);
      ++taken;
    }
  }
  for (uint32_t i = 0; i < taken; ++i) {
    GuardedBuffer target(message.size());
    Traffic traffic(*pair.send.net().fixture);
    PLEXUS_TRY(traffic.recv(pair.recv, target));
    PLEXUS_TRY(pair.send.net().fixture->wait_until(
        [&] { return fmt::format("message {} of {} that were queued", i + 1, taken); },
        [&]() -> Result<bool> {
          if (!sent.empty() && pair.send.test(sent.front(), nullptr) == PLEXUS_OK) {
            sent.pop_front();
          }
          return traffic.step();
        }));
    PLEXUS_TRY(target.expect_message(message));
  }
  PLEXUS_TRY(pair.send.net().fixture->wait_until(
      "the sends of many queued messages", [&]() -> Result<bool> {
        if (!sent.empty() && pair.send.test(sent.front(), nullptr) == PLEXUS_OK) {
          sent.pop_front();
        }
        return sent.empty();
      }));
  deregister(pair.send.net(), from);
  return fill_again(pair, most);
}

/// Posts up to `count` messages by calls of `post`, until many in a row are refused. Adds the
/// number of refusals to `refused`.
template <class End, class Post>
Result<std::deque<plexus_net_request_t*>> post_until_refused(End& end,
                                                             uint32_t count,
                                                             uint32_t& refused,
                                                             const Post& post) {
  constexpr int kRefusals = 16;
  std::deque<plexus_net_request_t*> posted;
  for (int refusals = 0; posted.size() < count && refusals < kRefusals;) {
    plexus_net_request_t* request = nullptr;
    const int32_t code = post(posted.size(), &request);
    if (code != PLEXUS_OK && code != PLEXUS_AGAIN) {
      return wrong("post {} of {} in flight failed with code {}: {}", posted.size() + 1, count,
                   code, end.net().fixture->monitor().last_failure());
    }
    if (code == PLEXUS_OK) {
      posted.push_back(request);
    } else {
      ++refusals;
      ++refused;
    }
  }
  return posted;
}

/// Runs `traffic`, the other end's, until it and all of `posted` are done.
template <class End>
Result<void> finish_posted(End& end, std::deque<plexus_net_request_t*> posted, Traffic& traffic) {
  const size_t count = posted.size();
  return end.net().fixture->wait_until(
      [&] { return fmt::format("{} of {} messages are done", count - posted.size(), count); },
      [&]() -> Result<bool> {
        uint64_t reported = 0;
        const int32_t code =
            posted.empty() ? int32_t{PLEXUS_AGAIN} : end.test(posted.front(), &reported);
        if (code == PLEXUS_OK) {
          posted.pop_front();
        } else if (code != PLEXUS_AGAIN) {
          return failed(end.net().fixture->monitor(), "test", code);
        }
        PLEXUS_TRY(is_done, traffic.step());
        return is_done && posted.empty();
      });
}

/// Messages whose sends are posted first, until the plugin refuses some, and then received.
Result<void> sends_first(Pair& pair, uint32_t count, const Bytes& message, uint32_t& refused) {
  PLEXUS_TRY(from, pair.send.register_memory(message.data(), message.size()));
  PLEXUS_TRY(posted, post_until_refused(pair.send, count, refused, [&](size_t, auto** request) {
               return pair.send.isend(message.data(), message.size(), 0, from, request);
             }));
  std::vector<GuardedBuffer> targets(posted.size(), GuardedBuffer(message.size()));
  {
    Traffic traffic(*pair.recv.net().fixture);
    for (GuardedBuffer& target : targets) {
      PLEXUS_TRY(traffic.recv(pair.recv, target));
    }
    PLEXUS_TRY(finish_posted(pair.send, std::move(posted), traffic));
  }
  deregister(pair.send.net(), from);
  for (const GuardedBuffer& target : targets) {
    PLEXUS_TRY(target.expect_message(message));
  }
  return ok();
}

/// The same with the receives first.
Result<void> receives_first(Pair& pair, uint32_t count, const Bytes& message, uint32_t& refused) {
  Bytes targets(count * message.size());
  PLEXUS_TRY(into, pair.recv.register_memory(targets.data(), targets.size()));
  PLEXUS_TRY(posted, post_until_refused(pair.recv, count, refused, [&](size_t i, auto** request) {
               const plexus_net_buffer_t buffer{targets.data() + i * message.size(), message.size(),
                                                into, 0, 0};
               return pair.recv.irecv({&buffer, 1}, request);
             }));
  const size_t accepted = posted.size();
  {
    Traffic traffic(*pair.send.net().fixture);
    for (size_t i = 0; i < accepted; ++i) {
      PLEXUS_TRY(traffic.send(pair.send, message));
    }
    PLEXUS_TRY(finish_posted(pair.recv, std::move(posted), traffic));
  }
  deregister(pair.recv.net(), into);
  for (size_t i = 0; i < accepted; ++i) {
    const auto begin = targets.begin() + static_cast<std::ptrdiff_t>(i * message.size());
    PLEXUS_TRY(expect(std::equal(message.begin(), message.end(), begin),
                      "message {} of {} arrived corrupted", i + 1, accepted));
  }
  return ok();
}

/// A plugin that loses a request when it refuses has none left after some rounds. As many messages
/// are in flight as NCCL has on a connection: eight, times the channels that share it where
/// receives are grouped.
Result<void> keeps_refused(Pair& pair) {
  constexpr uint32_t kInFlight = 8;
  constexpr int kRounds = 40;
  PLEXUS_TRY(context, Context::open(pair.send.net()));
  const auto& limits = context.properties();
  const uint32_t sends = std::min(kInFlight * limits.recvs_max, limits.requests_max);
  const Bytes message = make_message(longest_message(context, 60000), 3);
  const std::vector<TestMessage> others(kInFlight, TestMessage{.size_bytes = 100});
  uint32_t refused = 0;
  for (int round = 0; round < kRounds; ++round) {
    Result<void> result = sends_first(pair, sends, message, refused);
    if (result.has_value()) {
      result = receives_first(pair, kInFlight, message, refused);
    }
    if (result.has_value()) {
      result = deliver(pair, others);
    }
    if (result.has_error()) {
      return std::move(result).error().with_context(
          fmt::format("after {} calls that returned PLEXUS_AGAIN", refused));
    }
  }
  return refused > 0
             ? Result<void>(ok())
             : skip("it refused none of {} sends and {} receives in flight", sends, kInFlight);
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
  Fixture& fixture = *pair.send.net().fixture;
  for (size_t i = 0; i < 8; ++i) {
    PLEXUS_TRY(request, post(pair, {&targets[i], sizeof(uint64_t), into, 0, 0}));
    received[i] = request;
  }
  for (size_t i = 0; i < 8; ++i) {
    PLEXUS_TRY(fixture.wait_until("isend", [&]() -> Result<bool> {
      return pair.send.isend(&sources[i], sizeof(uint64_t), 0, from, &sent[i]) == PLEXUS_OK;
    }));
  }
  for (size_t i = 8; i-- > 0;) {  // only this one is tested until it is done
    bool is_sent = false;
    PLEXUS_TRY(fixture.wait_until("the newest request, tested alone", [&]() -> Result<bool> {
      const bool tests_send = !is_sent;
      const int32_t code =
          tests_send ? pair.send.test(sent[i], nullptr) : pair.recv.test(received[i], nullptr);
      if (code != PLEXUS_OK && code != PLEXUS_AGAIN) {
        return failed(fixture.monitor(), "test of the newest request", code);
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

Result<void> size_is_reported_when_done(Pair& pair) {
  uint64_t target = 0;
  PLEXUS_TRY(into, pair.recv.register_memory(&target, sizeof target));
  PLEXUS_TRY(request, post(pair, {&target, sizeof target, into, 0, 0}));
  uint64_t reported = 77;
  for (int i = 0; i < 100; ++i) {
    PLEXUS_TRY(expect(pair.recv.test(request, &reported) == PLEXUS_AGAIN && reported == 77,
                      "test wrote a size though the request is not complete"));
  }
  deregister(pair.recv.net(), into);
  return ok();
}

Result<void> size_is_reported(Pair& pair) {
  for (const uint64_t size : {uint64_t{1}, uint64_t{1000}}) {
    const Bytes message = make_message(size, 1);
    GuardedBuffer target(size + 10);
    Traffic traffic(*pair.send.net().fixture);
    PLEXUS_TRY(received, traffic.recv(pair.recv, target));
    PLEXUS_TRY(traffic.send(pair.send, message));
    PLEXUS_TRY(traffic.finish());
    PLEXUS_TRY(expect(received->sizes_bytes[0] == size,
                      "test of a receive reports {} bytes, sent were {}", received->sizes_bytes[0],
                      size));
  }
  return ok();
}

/// NCCL flushes only after a receive of more than 0 bytes.
Result<void> size_is_reported_for_gpus(Pair& pair) {
  PLEXUS_TRY(context, Context::open(pair.send.net()));
  if ((context.properties().pointer_support & (PLEXUS_MEMORY_CUDA | PLEXUS_MEMORY_DMABUF)) == 0) {
    return skip("the device supports no GPU memory");
  }
  return size_is_reported(pair);
}

Result<void> too_long(Pair& pair) {
  GuardedBuffer target(100);
  const Bytes message = make_message(101, 1);
  Traffic traffic(*pair.send.net().fixture);
  PLEXUS_TRY(traffic.recv(pair.recv, target));
  PLEXUS_TRY(traffic.send(pair.send, message));
  const Result<void> result = traffic.finish(milliseconds(3000));
  PLEXUS_TRY(
      expect(result.has_error(), "a message of 101 bytes was received into a buffer of 100"));
  PLEXUS_TRY(expect(result.error().message().find("timed out after") == std::string::npos,
                    "a receive that is too short for its message neither completes nor fails"));
  return target.expect_message({target.data(), target.size_bytes()});
}

Result<void> failed_stays_failed(Pair& pair) {
  GuardedBuffer target(10);
  GuardedBuffer other(1000);
  const Bytes message = make_message(1000, 1);
  PLEXUS_TRY(into, pair.recv.register_memory(other.data(), other.size_bytes()));
  Traffic traffic(*pair.send.net().fixture);
  PLEXUS_TRY(traffic.recv(pair.recv, target));
  PLEXUS_TRY(traffic.send(pair.send, message));
  const Result<void> result = traffic.finish(milliseconds(3000));
  PLEXUS_TRY(
      expect(result.has_error(), "a message of 1000 bytes was received into a buffer of 10"));
  const plexus_net_buffer_t buffer{other.data(), other.size_bytes(), into, 0, 0};
  Result<void> again = pair.recv.net().fixture->wait_until("a failure", [&]() -> Result<bool> {
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

constexpr const char* kLimitRule =
    "plexus_net.h requests_max: requests in flight per connection, at least 8";
constexpr const char* kAgainRule =
    "plexus_net.h isend: PLEXUS_AGAIN: queue full or peer not ready, nothing started, call again";
constexpr const char* kTestRule =
    "plexus_net.h test: PLEXUS_OK = done; the request is freed and must not be tested again";
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
    Check{"request.refused",
          "keeps its requests when it returns PLEXUS_AGAIN",
          kAgainRule,
          on_pair<keeps_refused>,
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
          on_pair<size_is_reported_when_done>},
    Check{"request.sizes", "reports how many bytes were received",
          "plexus_net.h test: `sizes_bytes` receives the bytes moved", on_pair<size_is_reported>},
    Check{"request.gpu_sizes", "reports it if it supports GPU memory",
          "NCCL flushes GPU memory only after a receive of more than 0 bytes",
          on_pair<size_is_reported_for_gpus>},
    Check{"request.too_long", "fails when a message is longer than its buffer",
          "plexus_net.h size_bytes: a longer one fails the connection", on_pair<too_long>},
    Check{"request.failed",
          "stays failed, and no longer accesses any buffer",
          kFailRule,
          on_pair<failed_stays_failed>,
          {.abi = CheckOptions::Abi::kNative}},
};

}  // namespace

CheckTable request_checks() { return kChecks; }

}  // namespace plexus::conformance
