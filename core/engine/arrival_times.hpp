// SPDX-License-Identifier: Apache-2.0
// How long a rank is inside its calls, and how long in between: a few counters, no message. Ranks
// that wait for each other spend the same time for a call and what comes before it; who arrives
// last spends more of it outside. So the ranks' counters of the same calls, compared when somebody
// asks (core/ras), name the rank that is late, and not those that wait for it.
//
//   if (times.wants(collectives, true)) {  // that were made with this call: the same number on all
//   ranks
//     times.note(collectives, start, Clock::now());
//   }
//
// Calls are taken in windows of 16 numbers. Where calls follow each other within 10 us only one
// window in 32 is timed, so that the clock costs nothing.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <vector>

namespace plexus {

struct ArrivalWindow {
  uint64_t number = 0;     // calls from 16 * number on
  uint64_t inside_ns = 0;  // in the calls of the window
  uint64_t period_ns = 0;  // from its first call to the first one of the next
};

/// Threads: one at a time, as the runs of a communicator's calls; list() from any.
class ArrivalTimes {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  /// Whether the call with this number is to be timed. Calls of messages alone, which have that of
  /// the last collective, are where collectives are.
  [[nodiscard]] bool wants(uint64_t sequence, bool has_collectives) const noexcept {
    return has_collectives ? sequence >= next_ : is_open_ && sequence / kCalls == open_.number;
  }
  void note(uint64_t sequence, TimePoint start, TimePoint end) noexcept {
    const uint64_t number = sequence / kCalls;
    if (!is_open_ || number != open_.number) {
      close(number, start);
      if (sequence < next_) {
        return;
      }
      open_ = {.number = number};
      opened_ = start;
      // A window is whole only if its first call is the first that was timed.
      is_open_ = true;
      is_whole_ = sequence % kCalls == 0 || is_contiguous_;
      is_contiguous_ = true;
      notes_ = 0;
    }
    open_.inside_ns += nanoseconds(end - start);
    if (++notes_ > kNotesMax) {  // many messages: the window is not worth the clock
      is_open_ = false;
      is_contiguous_ = false;
    }
  }

  /// The last windows, in no order.
  [[nodiscard]] std::vector<ArrivalWindow> list() const {
    std::vector<ArrivalWindow> found;
    for (const Shared& each : shared_) {
      const uint64_t version = each.version.load(std::memory_order_acquire);
      const ArrivalWindow window{.number = each.number.load(std::memory_order_relaxed),
                                 .inside_ns = each.inside_ns.load(std::memory_order_relaxed),
                                 .period_ns = each.period_ns.load(std::memory_order_relaxed)};
      std::atomic_thread_fence(std::memory_order_acquire);
      if (version != 0 && each.version.load(std::memory_order_relaxed) == version) {
        found.push_back(window);
      }
    }
    return found;
  }

  static constexpr uint64_t kCalls = 16;
  static constexpr size_t kWindows = 4;

 private:
  static constexpr uint64_t kOneIn = 32;
  static constexpr uint32_t kNotesMax = 1024;
  static constexpr uint64_t kFirst = 4;  // windows that are timed in any case
  static constexpr uint64_t kSlowNs = 10'000;

  struct Shared {
    std::atomic<uint64_t> version{0};  // of the window in it; 0: none, or it is being written
    std::atomic<uint64_t> number{0};
    std::atomic<uint64_t> inside_ns{0};
    std::atomic<uint64_t> period_ns{0};
  };
  static uint64_t nanoseconds(std::chrono::steady_clock::duration time) noexcept {
    return static_cast<uint64_t>(std::chrono::nanoseconds(time).count());
  }
  /// A call of window `number` starts.
  void close(uint64_t number, TimePoint start) noexcept {
    if (!is_open_) {
      return;
    }
    is_open_ = false;
    open_.period_ns = nanoseconds(start - opened_);
    if (is_whole_ && number == open_.number + 1) {
      Shared& to = shared_[published_++ % kWindows];
      to.version.store(0, std::memory_order_relaxed);
      std::atomic_thread_fence(std::memory_order_release);
      to.number.store(open_.number, std::memory_order_relaxed);
      to.inside_ns.store(open_.inside_ns, std::memory_order_relaxed);
      to.period_ns.store(open_.period_ns, std::memory_order_relaxed);
      to.version.store(published_, std::memory_order_release);  // pairs with acquire in list()
      if (number >= kFirst && open_.period_ns < kSlowNs * kCalls) {
        next_ = (number / kOneIn + 1) * kOneIn * kCalls;
        is_contiguous_ = false;
      }
    }
  }

  uint64_t next_ = 0;  // number of the next call to be timed
  bool is_open_ = false;
  bool is_whole_ = false;
  uint32_t notes_ = 0;         // in the open window
  bool is_contiguous_ = true;  // the call before the next one was timed
  ArrivalWindow open_;
  TimePoint opened_;
  uint64_t published_ = 0;
  std::array<Shared, kWindows> shared_;
};

}  // namespace plexus
