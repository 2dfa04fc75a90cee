// SPDX-License-Identifier: Apache-2.0
// A clock for bounded waits, and deadlines on it.
//
//   const Deadline end = Deadline::after(std::chrono::seconds(2));
//   while (!is_done() && !end.expired()) {
//     std::this_thread::yield();
//   }
#pragma once

#include <algorithm>
#include <chrono>

namespace plexus {

using Clock = std::chrono::steady_clock;

/// The point in time at which a wait ends with a timeout. A value.
class Deadline {
 public:
  static Deadline after(Clock::duration duration) { return Deadline(Clock::now() + duration); }
  static Deadline never() { return Deadline(Clock::time_point::max()); }

  /// This one, or `duration` from now if that is earlier.
  [[nodiscard]] Deadline or_after(Clock::duration duration) const {
    return Deadline(std::min(at_, Clock::now() + duration));
  }

  [[nodiscard]] bool expired() const {
    return at_ != Clock::time_point::max() && Clock::now() >= at_;
  }
  /// Milliseconds left for poll(2), at most `bound_ms`.
  [[nodiscard]] int poll_ms(int bound_ms) const {
    if (at_ == Clock::time_point::max()) {
      return bound_ms;
    }
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(at_ - Clock::now()).count();
    return static_cast<int>(std::clamp<int64_t>(left + 1, 0, bound_ms));
  }
  [[nodiscard]] Clock::time_point time() const { return at_; }

 private:
  explicit Deadline(Clock::time_point at) : at_(at) {}
  Clock::time_point at_;
};

}  // namespace plexus
