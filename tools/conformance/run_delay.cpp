// SPDX-License-Identifier: Apache-2.0
#include "tools/conformance/run_delay.hpp"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>

namespace plexus::conformance {
namespace {

namespace fs = std::filesystem;
using std::chrono::nanoseconds;

/// Parses "ran waited times": ns on a core, ns waiting for one, number of time slices.
nanoseconds read_schedstat(const fs::path& path) {
  std::ifstream file(path);
  int64_t ran = 0;
  int64_t waited = 0;
  file >> ran >> waited;
  return nanoseconds(file ? waited : 0);
}

}  // namespace

nanoseconds read_run_delay() { return read_schedstat("/proc/thread-self/schedstat"); }

nanoseconds read_run_delay(pid_t process) {
  nanoseconds longest{0};
  std::error_code error;
  const fs::path folder = fs::path("/proc") / std::to_string(process) / "task";
  for (auto each = fs::directory_iterator(folder, error);
       !error && each != fs::directory_iterator(); each.increment(error)) {
    longest = std::max(longest, read_schedstat(each->path() / "schedstat"));
  }
  return longest;
}

FairDeadline::FairDeadline(std::chrono::milliseconds limit, pid_t process, int times_most)
    : process_(process),
      end_(Clock::now() + limit),
      most_((times_most - 1) * limit),
      delay_at_begin_(read()) {}

nanoseconds FairDeadline::read() const {
  return process_ == 0 ? read_run_delay() : read_run_delay(process_);
}

bool FairDeadline::is_over() {
  const auto now = Clock::now();
  if (now <= end_ + delay_) {
    return false;
  }
  // The delay of a thread disappears when the thread ends.
  delay_ = std::clamp<nanoseconds>(read() - delay_at_begin_, delay_, std::max(delay_, most_));
  return now > end_ + delay_;
}

}  // namespace plexus::conformance
