// SPDX-License-Identifier: Apache-2.0
#include "tools/conformance/monitor.hpp"

#include <algorithm>
#include <bit>
#include <exception>

#include <fmt/core.h>

#include "tools/conformance/run_delay.hpp"

namespace plexus::conformance {
namespace {

constexpr size_t kLinesMax = 10000;

}  // namespace

void Monitor::measure_this_thread() { measured_ = std::this_thread::get_id(); }

Monitor::Begin Monitor::begin_now() noexcept {
  const auto delay = read_run_delay();
  return {Clock::now(), delay};
}

void Monitor::add_time(Place place, const Begin& begin) noexcept {
  const auto now = Clock::now();
  const auto delay = read_run_delay() - begin.delay;
  const auto took = std::max<int64_t>((now - begin.time - delay).count(), 0);
  const auto bucket = std::min<size_t>(std::bit_width(static_cast<uint64_t>(took)), kBuckets - 1);
  const auto index = static_cast<size_t>(place);
  histogram_[index][bucket].fetch_add(1, std::memory_order_relaxed);
  int64_t longest = longest_[index].load(std::memory_order_relaxed);
  while (took > longest &&
         !longest_[index].compare_exchange_weak(longest, took, std::memory_order_relaxed)) {
  }
}

void Monitor::report(std::string_view breach) noexcept {
  if (!status_->is_broken.exchange(true)) {
    status_->broken.set(breach);
    status_->has_broken_text = true;
  }
}

void Monitor::report_exception(Place place) noexcept {
  report(std::string("a C++ exception escaped from ") + place_name(place));
}

void Monitor::check_code(Place place, int32_t code) {
  const auto self = std::this_thread::get_id();
  const std::scoped_lock lock(mutex_);
  Failure failure{self, fmt::format("{} returned code {}", place_name(place), code), 0};
  std::erase_if(unreported_, [&](const LogLine& line) {
    if (line.thread == self) {
      failure.text = line.text;
      ++failure.lines;
      return true;
    }
    return false;
  });
  if (code < PLEXUS_OK || code > PLEXUS_TIMEOUT) {
    report(fmt::format("{} returned {}, which is not a code of plexus_plugin.h", place_name(place),
                       code));
  } else if (code == PLEXUS_AGAIN && !may_say_again(place)) {
    report(fmt::format("{} returned PLEXUS_AGAIN, which it must not", place_name(place)));
  } else if ((code == PLEXUS_OK || code == PLEXUS_AGAIN) && failure.lines > 0) {
    report(fmt::format("{} returned {}, but logged the reason of a failure: {}", place_name(place),
                       code, failure.text));
  } else if (code != PLEXUS_OK && code != PLEXUS_AGAIN) {
    if (failure.lines == 0) {
      report(fmt::format(
          "{} failed with code {} without a PLEXUS_LOG_ERROR line that gives the reason",
          place_name(place), code));
    }
    std::erase_if(failures_, [&](const Failure& each) { return each.thread == self; });
    failures_.push_back(std::move(failure));
  }
}

void Monitor::write_line(plexus_log_sink_t* sink,
                         int32_t level,
                         const char* /*file*/,
                         int32_t /*line*/,
                         const char* text) noexcept {
  if (sink == nullptr) {
    std::terminate();  // cannot be reported: the verdict names the entry and the abort
  }
  reinterpret_cast<Monitor*>(sink)->take_line(level, text);
}

void Monitor::take_line(int32_t level, const char* text) {
  if (text == nullptr) {
    report("the plugin logged a null text");
    return;
  }
  if (level != PLEXUS_LOG_ERROR && level != PLEXUS_LOG_WARN && level != PLEXUS_LOG_INFO &&
      level != PLEXUS_LOG_TRACE) {
    report(fmt::format("the plugin logged a line of level {}, which does not exist", level));
  }
  const LogLine line{std::this_thread::get_id(), level, text};
  const std::scoped_lock lock(mutex_);
  if (level == PLEXUS_LOG_ERROR) {
    unreported_.push_back(line);
    errors_.fetch_add(1, std::memory_order_relaxed);
  }
  if (lines_.size() < kLinesMax) {
    lines_.push_back(line);
  }
}

std::string Monitor::last_failure() const {
  const std::scoped_lock lock(mutex_);
  const auto found = std::find_if(failures_.begin(), failures_.end(), [](const Failure& each) {
    return each.thread == std::this_thread::get_id();
  });
  return found == failures_.end() ? "no reason given" : found->text;
}

uint32_t Monitor::last_failure_lines() const {
  const std::scoped_lock lock(mutex_);
  const auto found = std::find_if(failures_.begin(), failures_.end(), [](const Failure& each) {
    return each.thread == std::this_thread::get_id();
  });
  return found == failures_.end() ? 0 : found->lines;
}

std::vector<LogLine> Monitor::lines() const {
  const std::scoped_lock lock(mutex_);
  return lines_;
}

void Monitor::forget_lines() {
  const std::scoped_lock lock(mutex_);
  std::vector<LogLine>().swap(lines_);
}

Monitor::Times Monitor::times(Place place) const {
  const auto index = static_cast<size_t>(place);
  Times times;
  for (const auto& bucket : histogram_[index]) {
    times.calls += bucket.load();
  }
  uint64_t seen = 0;
  for (size_t bits = 0; bits < kBuckets && times.median.count() == 0 && times.calls > 0; ++bits) {
    seen += histogram_[index][bits].load();
    if (2 * seen >= times.calls) {
      times.median = std::chrono::nanoseconds(int64_t{1} << bits);
    }
  }
  times.longest = std::chrono::nanoseconds(longest_[index].load());
  return times;
}

void Monitor::forget_times() {
  for (auto& place : histogram_) {
    for (auto& bucket : place) {
      bucket = 0;
    }
  }
  for (auto& longest : longest_) {
    longest = 0;
  }
}

}  // namespace plexus::conformance
