// SPDX-License-Identifier: Apache-2.0
// Every call into the plugin goes through a `Monitor`. It records on the board where the process
// is, takes the plugin's log lines, measures time, and checks the rules for every entry: no
// exception escapes, the code is one of plexus_plugin.h, PLEXUS_AGAIN is returned only where
// allowed, a failure has its sentence. The first violation is left on the board and fails the
// check, whatever else it finds.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "plugin-api/plexus_plugin.h"

#include "tools/conformance/board.hpp"

namespace plexus::conformance {

struct LogLine {
  std::thread::id thread;
  int32_t level;
  std::string text;
};

/// Threads: any.
class Monitor {
 public:
  explicit Monitor(Seat& seat) : seat_(&seat) {}
  Monitor(const Monitor&) = delete;
  Monitor& operator=(const Monitor&) = delete;

  /// A call that returns a code.
  template <class Call>
  int32_t call(Place place, Call&& made) {
    const uint32_t lines_before = errors_.load(std::memory_order_relaxed);
    const auto begin = enter(place);
    int32_t code = PLEXUS_INTERNAL_ERROR;
    try {
      code = made();
      leave(place, begin);
    } catch (...) {
      report_exception(place);
    }
    if (code != PLEXUS_OK || errors_.load(std::memory_order_relaxed) != lines_before) {
      check_code(place, code);
    }
    return code;
  }
  /// A call that returns nothing, or no code.
  template <class Call>
  void call_void(Place place, Call&& made) {
    const auto begin = enter(place);
    try {
      made();
      leave(place, begin);
    } catch (...) {
      report_exception(place);
    }
  }

  static void write_line(plexus_log_sink_t* sink,
                         int32_t level,
                         const char* file,
                         int32_t line,
                         const char* text) noexcept;
  [[nodiscard]] plexus_log_sink_t* sink() noexcept {
    return reinterpret_cast<plexus_log_sink_t*>(this);
  }

  /// The first violation is kept.
  void report(std::string_view breach) noexcept;
  /// The sentence of the last failing call of this thread, or "code 6".
  [[nodiscard]] std::string last_failure() const;
  /// Number of PLEXUS_LOG_ERROR lines of the last failing call of this thread.
  [[nodiscard]] uint32_t last_failure_lines() const;
  [[nodiscard]] std::vector<LogLine> lines() const;
  [[nodiscard]] uint32_t error_lines() const noexcept { return errors_.load(); }

  struct Times {
    uint64_t calls = 0;
    std::chrono::nanoseconds longest{0};
    std::chrono::nanoseconds median{0};  // rounded up to a power of two
  };
  [[nodiscard]] Times times(Place place) const;
  /// From now on, the calls of this thread are measured without the time in which other threads
  /// used its core. For checks of time, which have one thread.
  void measure_this_thread();
  void forget_times();

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr size_t kBuckets = 40;  // by the number of bits of the nanoseconds
  struct Failure {
    std::thread::id thread;
    std::string text;
    uint32_t lines;
  };

  struct Begin {
    Clock::time_point time;
    std::chrono::nanoseconds delay;
  };
  Begin enter(Place place) noexcept {
    seat_->place.store(place, std::memory_order_relaxed);
    const auto delay = read_delay();
    return {Clock::now(), delay};
  }
  void leave(Place place, const Begin& begin) noexcept;
  [[nodiscard]] std::chrono::nanoseconds read_delay() const noexcept;
  void report_exception(Place place) noexcept;
  void check_code(Place place, int32_t code);
  void take_line(int32_t level, const char* text);

  Seat* seat_;
  std::thread::id measured_;  // none: all threads, with all time
  std::atomic<uint32_t> errors_{0};
  mutable std::mutex mutex_;
  std::vector<LogLine> lines_;     // guarded by mutex_
  std::vector<LogLine> untold_;    // guarded by mutex_: error lines of calls that have not returned
  std::vector<Failure> failures_;  // guarded by mutex_: the latest of each thread
  std::array<std::array<std::atomic<uint64_t>, kBuckets>, kPlaces> histogram_{};
  std::array<std::atomic<int64_t>, kPlaces> longest_{};
};

}  // namespace plexus::conformance
