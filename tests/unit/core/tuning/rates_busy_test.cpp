// SPDX-License-Identifier: Apache-2.0
// Measuring where a thread gets its core later than the other one has patience: a busy host.
#include <atomic>
#include <chrono>
#include <sched.h>
#include <sys/syscall.h>
#include <thread>
#include <unistd.h>

#include <gtest/gtest.h>

#include "core/tuning/measure_rates.hpp"

namespace {

// Longer than the patience of a measurement.
constexpr auto kLate = std::chrono::milliseconds(400);
std::atomic<int> late_one{0};  // NOLINT: which of the two threads that bind themselves is late
std::atomic<int> bound{0};     // NOLINT

}  // namespace

/// In place of libc's.
extern "C" int sched_setaffinity(pid_t process,
                                 size_t size_bytes,
                                 const cpu_set_t* cores) noexcept {
  const auto result = syscall(SYS_sched_setaffinity, process, size_bytes, cores);
  if (CPU_COUNT_S(size_bytes, cores) == 1 && bound.fetch_add(1) == late_one) {
    std::this_thread::sleep_for(kLate);
  }
  return result < 0 ? -1 : 0;
}

namespace plexus {
namespace {

/// The thread that is late must not unset that the other one has given up: zeros would pass as
/// times.
TEST(MeasureBusyHost, GivesNoTimesThatNobodyMeasured) {
  for (const int late : {0, 1}) {
    late_one = late;
    bound = 0;
    const auto rates = measure_host_rates();
    EXPECT_TRUE(rates.has_error() || is_plausible(rates.value())) << "late: " << late;
  }
}

}  // namespace
}  // namespace plexus
