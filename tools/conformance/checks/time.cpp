// SPDX-License-Identifier: Apache-2.0
// How long calls and messages take, whatever else the machine does.
#include <algorithm>
#include <array>
#include <chrono>
#include <deque>
#include <vector>

#include "core/base/median.hpp"
#include "tools/conformance/check.hpp"
#include "tools/conformance/run_delay.hpp"
#include "tools/conformance/traffic.hpp"

namespace plexus::conformance {
namespace {

constexpr std::chrono::milliseconds kData(1);
constexpr std::chrono::milliseconds kConnections(5);

/// The calls of `place` take no more than `most` usually, independent of the machine's other load.
Result<void> is_quick(Monitor& monitor, Place place, std::chrono::milliseconds most) {
  constexpr auto kLongest = std::chrono::seconds(1);
  const Monitor::Times times = monitor.times(place);
  PLEXUS_TRY(
      expect(times.calls >= 8, "{} was called only {} times", place_name(place), times.calls));
  PLEXUS_TRY(expect(times.median <= most, "every second call of {} takes {} us or more",
                    place_name(place), times.median.count() / 2000));
  return expect(times.longest <= kLongest, "a call of {} took {} ms", place_name(place),
                times.longest.count() / 1'000'000);
}

template <Place... kPlaces>
Result<void> quick_while_waiting(Pair& pair) {
  Monitor& monitor = pair.send.net().fixture->monitor();
  monitor.measure_this_thread();
  const std::vector<TestMessage> messages(200, TestMessage{.size_bytes = 2000});
  PLEXUS_TRY(deliver(pair, messages));
  GuardedBuffer target(1000);
  Traffic traffic(*pair.send.net().fixture);
  PLEXUS_TRY(traffic.recv(pair.recv, target));
  PLEXUS_TRY(traffic.settle(milliseconds(200)));
  for (const Place place : {kPlaces...}) {
    PLEXUS_TRY(is_quick(monitor, place, kData));
  }
  return ok();
}

/// One peer takes nothing: calls for it return at once, and so do those for another.
Result<void> quick_beside_a_slow_peer(const Context& context) {
  Monitor& monitor = context.net().fixture->monitor();
  monitor.measure_this_thread();
  PLEXUS_TRY(slow, connect_pair(context, context));
  PLEXUS_TRY(quick, connect_pair(context, context));
  const Bytes message = make_message(longest_message(context, 1 << 20), 5);
  std::vector<GuardedBuffer> targets(8, GuardedBuffer(message.size()));
  Traffic traffic(*context.net().fixture);
  for (size_t i = 0; i < targets.size(); ++i) {
    PLEXUS_TRY(traffic.send(slow.send, message));
  }
  PLEXUS_TRY(traffic.settle(milliseconds(20)));
  monitor.forget_times();
  PLEXUS_TRY(traffic.settle(milliseconds(200)));
  for (const Place place : {Place::kIsend, Place::kTest}) {
    if (monitor.times(place).calls > 0) {
      PLEXUS_TRY(is_quick(monitor, place, kData));
    }
  }
  monitor.forget_times();
  const std::vector<TestMessage> others(100, TestMessage{.size_bytes = 2000});
  PLEXUS_TRY(deliver(quick, others));
  PLEXUS_TRY(is_quick(monitor, Place::kIsend, kData));
  PLEXUS_TRY(is_quick(monitor, Place::kTest, kData));
  for (GuardedBuffer& target : targets) {
    PLEXUS_TRY(traffic.recv(slow.recv, target));
  }
  PLEXUS_TRY(traffic.finish());
  for (const GuardedBuffer& target : targets) {
    PLEXUS_TRY(target.expect_message(message));
  }
  return ok();
}

/// Time of one message, without that in which other threads had the core.
Result<std::chrono::nanoseconds> measure_message(Pair& pair, uint64_t size_bytes) {
  const Bytes message = make_message(size_bytes, 1);
  GuardedBuffer target(size_bytes);
  Traffic traffic(*pair.send.net().fixture);
  PLEXUS_TRY(traffic.recv(pair.recv, target));
  PLEXUS_TRY(traffic.send(pair.send, message));
  const auto delay = read_run_delay();
  const auto begin = std::chrono::steady_clock::now();
  PLEXUS_TRY(traffic.finish());
  const auto end = std::chrono::steady_clock::now();
  return end - begin - (read_run_delay() - delay);
}

/// In turns, so that the machine's load is the same for all.
Result<void> peers_alike(const Context& context) {
  constexpr size_t kPeers = 8;
  constexpr int kRounds = 15;
  constexpr int kTimes = 10;
  constexpr auto kLeast = std::chrono::milliseconds(2);
  std::deque<Pair> pairs;
  for (size_t i = 0; i < kPeers; ++i) {
    PLEXUS_TRY(pair, connect_pair(context, context));
    pairs.push_back(std::move(pair));
  }
  for (const uint64_t size : {uint64_t{64}, longest_message(context, 200'000)}) {
    std::array<std::vector<std::chrono::nanoseconds>, kPeers> times;
    for (int round = 0; round < kRounds; ++round) {
      for (size_t i = 0; i < kPeers; ++i) {
        PLEXUS_TRY(time, measure_message(pairs[i], size));
        times[i].push_back(time);
      }
    }
    std::vector<std::chrono::nanoseconds> medians;
    for (const auto& each : times) {
      medians.push_back(median(each));
    }
    const auto slowest = std::max_element(medians.begin(), medians.end());
    const auto usual = median(medians);
    PLEXUS_TRY(expect(*slowest <= std::max<std::chrono::nanoseconds>(kTimes * usual, kLeast),
                      "messages of {} bytes over connection {} of {} take {} us, over the others "
                      "{} us",
                      size, slowest - medians.begin() + 1, kPeers, slowest->count() / 1000,
                      usual.count() / 1000));
  }
  return ok();
}

Result<void> quick_connections(const Context& context) {
  Monitor& monitor = context.net().fixture->monitor();
  monitor.measure_this_thread();
  for (int i = 0; i < 16; ++i) {
    PLEXUS_TRY(pair, connect_pair(context, context));
    pair.send.close();
    pair.recv.close();
  }
  for (const Place place : {Place::kListen, Place::kConnect, Place::kAccept, Place::kCloseSend,
                            Place::kCloseRecv, Place::kCloseListen}) {
    PLEXUS_TRY(is_quick(monitor, place, kConnections));
  }
  return ok();
}
constexpr const char* kBlockRule =
    "plexus_net.h: no entry blocks, except where \"may take long\" is stated";

constexpr std::array kChecks = {
    Check{"time.data",
          "isend, irecv and test return at once",
          kBlockRule,
          on_pair<quick_while_waiting<Place::kIsend, Place::kIrecv, Place::kTest>>,
          {.is_alone = true}},
    Check{"time.slow_peer",
          "isend and test return at once though a peer takes nothing",
          kBlockRule,
          on_context<quick_beside_a_slow_peer>,
          {.is_alone = true}},
    Check{"time.peers",
          "is not much slower over one of several connections",
          "plexus_net.h: no entry blocks, so that one connection does not hold up another",
          on_context<peers_alike>,
          {.limit = seconds(40), .is_alone = true}},
    Check{"time.connect",
          "listen, connect, accept and close return at once",
          kBlockRule,
          on_context<quick_connections>,
          {.is_alone = true}},
};

}  // namespace

CheckTable time_checks() { return kChecks; }

}  // namespace plexus::conformance
