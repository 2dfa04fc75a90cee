// SPDX-License-Identifier: Apache-2.0
// The events of a simulation in the order of time. Events of one time are ordered by what they are
// and by their place in their rank, never by which rank it is: ranks of one class see the same
// order (network.hpp).
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <tuple>
#include <utility>
#include <vector>

#include "tools/sim/steady.hpp"

namespace plexus {

struct SimEvent {
  enum class Kind : uint8_t {
    kDeparture,
    kHead,
    kFlowEnd,
    kArrival,
    kSlotFree,
    kHandOver,
    kTurn,
    kStepEnd,
    kCallEnd
  };
  double time_us = 0;
  Kind kind = Kind::kHead;
  uint32_t place = 0;   // in its rank: a connection's, or the lane
  uint32_t number = 0;  // connection, or rank
  double value = 0;     // kDeparture: bytes; kHead: duration; kFlowEnd, kTurn: version
};

/// A radix heap: times never go back, so that events to come lie in buckets by the highest bit in
/// which their time differs from now, and are looked at again when a bucket's turn comes.
class SimClock {
 public:
  /// Not before now_us().
  void add(const SimEvent& event) {
    if (event.time_us == now_us_) {
      now_.push_back(event);
      std::push_heap(now_.begin(), now_.end(), comes_later);
    } else {
      const uint64_t differs = bits_of(event.time_us) ^ bits_of(now_us_);
      later_[static_cast<size_t>(std::bit_width(differs)) - 1].push_back(event);
    }
  }
  [[nodiscard]] double now_us() const { return now_us_; }
  /// Goes to the time of the next event; now, if there is one. False: there is none.
  bool advance() {
    if (!now_.empty()) {
      return true;
    }
    const auto first = std::find_if(later_.begin(), later_.end(),
                                    [](const auto& bucket) { return !bucket.empty(); });
    if (first == later_.end()) {
      return false;
    }
    moved_.swap(*first);
    now_us_ =
        std::min_element(moved_.begin(), moved_.end(), [](const SimEvent& a, const SimEvent& b) {
          return a.time_us < b.time_us;
        })->time_us;
    for (const SimEvent& event : moved_) {
      add(event);
    }
    moved_.clear();
    return true;
  }
  /// Whether there is an event of this time.
  [[nodiscard]] bool has_now() const { return !now_.empty(); }
  SimEvent take() {
    std::pop_heap(now_.begin(), now_.end(), comes_later);
    const SimEvent event = now_.back();
    now_.pop_back();
    return event;
  }
  /// All that is to come.
  void mix_into(SimState& state) const {
    for_all([&](const SimEvent& event) {
      SimState one;
      one.mix(event.time_us - now_us_);
      one.mix(static_cast<uint64_t>(event.kind) << 32 | event.place);
      one.mix(uint64_t{event.number});
      one.mix(event.value);
      state.add(one);
    });
  }
  void skip(double us) {
    SimClock shifted;
    shifted.now_us_ = now_us_ + us;
    for_all([&](SimEvent event) {
      event.time_us += us;
      shifted.add(event);
    });
    *this = std::move(shifted);
  }

 private:
  template <class Use>
  void for_all(const Use& use) const {
    std::for_each(now_.begin(), now_.end(), use);
    for (const std::vector<SimEvent>& bucket : later_) {
      std::for_each(bucket.begin(), bucket.end(), use);
    }
  }
  /// Of times, which are not negative, in their order.
  static uint64_t bits_of(double time_us) { return std::bit_cast<uint64_t>(time_us); }
  static bool comes_later(const SimEvent& a, const SimEvent& b) {
    return std::tie(a.kind, a.place, a.number) > std::tie(b.kind, b.place, b.number);
  }

  double now_us_ = 0;
  std::vector<SimEvent> now_;  // a heap
  std::array<std::vector<SimEvent>, 64> later_;
  std::vector<SimEvent> moved_;  // between buckets
};

}  // namespace plexus
