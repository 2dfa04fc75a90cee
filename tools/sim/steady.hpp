// SPDX-License-Identifier: Apache-2.0
// The steady state of a pipeline. Loop after loop ranks do the same, and after some loops in the
// same rhythm: when all that decides what comes (where lanes are, what is under way, when ports are
// free), taken relative to the time and to the loops of each channel, is what it was before, then
// everything between the two repeats until a lane comes to its last loop, whose chunks are shorter.
// Such periods are skipped. That is exact to the last bit because times are multiples of a tick:
// sums and differences of them have no rounding (on_tick()).
#pragma once

#include <bit>
#include <cmath>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <utility>
#include <vector>

namespace plexus {

/// Multiples of 2^-20 us (a picosecond) have exact sums up to 2^33 us (2 hours), in a double.
inline constexpr double kTicksOfUs = 1 << 20;
inline constexpr double kExactUsMax = 8'589'934'592.0;
inline double on_tick(double us) { return std::nearbyint(us * kTicksOfUs) / kTicksOfUs; }

/// Two hashes of a state; of its unordered parts the sum.
class SimState {
 public:
  void mix(uint64_t value) {
    one_ = (one_ ^ value) * 0x9E3779B97F4A7C15ULL;
    one_ ^= one_ >> 32;
    two_ = (two_ + value) * 0xC2B2AE3D27D4EB4FULL;
    two_ ^= two_ >> 29;
  }
  void mix(double value) { mix(std::bit_cast<uint64_t>(value)); }
  void add(const SimState& part) {
    one_ += part.one_;
    two_ += part.two_;
  }
  friend auto operator<=>(const SimState&, const SimState&) = default;

 private:
  uint64_t one_ = 1;
  uint64_t two_ = 2;
};

/// What has been done up to a time.
struct SimProgress {
  double time_us = 0;
  std::vector<uint32_t> loops;  // by channel, of one of its lanes
  uint64_t messages = 0;
  uint64_t events = 0;
  std::vector<uint64_t> wide_bytes;  // [SimNetwork::ranks]
};

/// Finds the period: the states of loop after loop are remembered until one comes again. From then
/// on its next return ends a whole period. After kStatesMax it gives up.
class SteadyState {
 public:
  enum class Found { kNothing, kBegin, kEnd, kGivenUp };
  static constexpr size_t kStatesMax = 1 << 14;
  Found look(const SimState& state) {
    if (begin_.has_value()) {
      return state == *begin_ ? Found::kEnd : Found::kNothing;
    }
    if (seen_.insert(state).second) {
      return seen_.size() < kStatesMax ? Found::kNothing : Found::kGivenUp;
    }
    begin_ = state;
    return Found::kBegin;
  }
  void forget() {
    seen_.clear();
    begin_.reset();
  }

 private:
  std::set<SimState> seen_;
  std::optional<SimState> begin_;
};

}  // namespace plexus
