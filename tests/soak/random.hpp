// SPDX-License-Identifier: Apache-2.0
// The driver's random numbers: equal for equal seeds on every machine and compiler, unlike the
// distributions of <random>. A job depends only on its seed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace plexus::soak {

/// SplitMix64's output function: any two inputs give unrelated outputs.
constexpr uint64_t mix(uint64_t value) {
  value += 0x9e3779b97f4a7c15;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9;
  value = (value ^ (value >> 27)) * 0x94d049bb133111eb;
  return value ^ (value >> 31);
}

constexpr uint64_t mix(uint64_t first, uint64_t second) { return mix(mix(first) ^ second); }

class Random {
 public:
  explicit Random(uint64_t seed) : state_(mix(seed)) {}

  uint64_t next() { return state_ = mix(state_); }
  /// 0 to limit - 1.
  int below(int limit) { return static_cast<int>(next() % static_cast<uint64_t>(limit)); }
  int between(int first, int last) { return first + below(last - first + 1); }
  bool chance(int percent) { return below(100) < percent; }

  template <class T>
  const T& pick(const std::vector<T>& from) {
    return from[next() % from.size()];
  }
  template <class T>
  void shuffle(std::vector<T>& items) {
    for (size_t left = items.size(); left > 1; --left) {
      std::swap(items[left - 1], items[next() % left]);
    }
  }

 private:
  uint64_t state_;
};

}  // namespace plexus::soak
