// SPDX-License-Identifier: Apache-2.0
// Every call into the plugin goes through a `Monitor`. It records on the status page where the
// process is, takes the plugin's log lines, measures time, and checks the rules for every entry: no
// exception escapes, the code is one of plexus_plugin.h, PLEXUS_AGAIN is returned only where
// allowed, a failure has its sentence. The first violation is left on the status page and fails the
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

#include "tools/conformance/status_page.hpp"

namespace plexus::conformance {

struct LogLine {
  std::thread::id thread;
  int32_t level;
  std::string text;
};

/// Threads: any.
class Monitor {
 public:
  explicit Monitor(ProcessStatus& status) : status_(&status) {}
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
    const bool is_calm = code == PLEXUS_OK || (code == PLEXUS_AGAIN && may_say_again(place));
    if (!is_calm || errors_.load(std::memory_order_relaxed) != lines_before) {
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
  /// Frees the memory of all lines so far.
  void forget_lines();
  [[nodiscard]] uint32_t error_lines() const noexcept { return errors_.load(); }

  struct Times {
    uint64_t calls = 0;
    std::chrono::nanoseconds longest{0};
    std::chrono::nanoseconds median{0};  // rounded up to a power of two
  };
  [[nodiscard]] Times times(Place place) const;
  /// From now on, the calls of this thread are measured, without the time in which other threads
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
  // What these two cost is in every time that the kit's benchmark measures.
  Begin enter(Place place) noexcept {
    status_->place.store(place, std::memory_order_relaxed);
    return is_measured() ? begin_now() : Begin{};
  }
  void leave(Place place, const Begin& begin) noexcept {
    if (is_measured()) {
      add_time(place, begin);
    }
    status_->place.store(Place::kKit, std::memory_order_relaxed);
  }
  [[nodiscard]] bool is_measured() const noexcept {
    return measured_ == std::this_thread::get_id();
  }
  [[nodiscard]] static Begin begin_now() noexcept;
  void add_time(Place place, const Begin& begin) noexcept;
  [[nodiscard]] static bool may_say_again(Place place) noexcept {
    return place == Place::kConnect || place == Place::kAccept || place == Place::kIsend ||
           place == Place::kIrecv || place == Place::kTest || place == Place::kIallreduce;
  }
  void report_exception(Place place) noexcept;
  void check_code(Place place, int32_t code);
  void take_line(int32_t level, const char* text);

  ProcessStatus* status_;
  std::thread::id measured_;
  std::atomic<uint32_t> errors_{0};
  mutable std::mutex mutex_;
  std::vector<LogLine> lines_;  // guarded by mutex_
  std::vector<LogLine>
      unreported_;                 // guarded by mutex_: error lines of calls that have not returned
  std::vector<Failure> failures_;  // guarded by mutex_: the latest of each thread
  std::array<std::array<std::atomic<uint64_t>, kBuckets>, kPlaces> histogram_{};
  std::array<std::atomic<int64_t>, kPlaces> longest_{};
};

}  // namespace plexus::conformance
