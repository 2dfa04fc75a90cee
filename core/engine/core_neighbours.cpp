// SPDX-License-Identifier: Apache-2.0
#include "core/engine/core_neighbours.hpp"

#include <ctime>
#include <utility>

namespace plexus {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;

// Longer than a yield takes when nobody else is there.
constexpr auto kOthersRan = microseconds(20);
// The processor time of the process is read so often, and is of use for so long.
constexpr auto kReadEvery = milliseconds(1);
constexpr auto kReadMax = milliseconds(20);
constexpr double kShareMin = 0.2;  // of the time

nanoseconds read(clockid_t clock) noexcept {
  timespec time{};
  clock_gettime(clock, &time);
  return std::chrono::seconds(time.tv_sec) + nanoseconds(time.tv_nsec);
}

}  // namespace

nanoseconds CoreNeighbours::read_others() noexcept {
  return read(CLOCK_PROCESS_CPUTIME_ID) - read(CLOCK_THREAD_CPUTIME_ID);
}

bool CoreNeighbours::did_others_run(Clock::time_point now) noexcept {
  const auto ran = read_others_();
  const std::chrono::duration<double> others = ran - std::exchange(others_ran_, ran);
  const auto time = now - std::exchange(looked_at_, now);
  return time < kReadMax && others > kShareMin * time;
}

bool CoreNeighbours::are_there(Clock::time_point now) noexcept {
  if (are_known_) {
    const auto time = now - looked_at_;
    are_known_ = time < kReadEvery || (time < kReadMax && did_others_run(now));
  }
  return are_known_;
}

void CoreNeighbours::learn(Clock::time_point before, Clock::time_point after) noexcept {
  if (after - before > kOthersRan && after - looked_at_ >= kReadEvery) {
    are_known_ = did_others_run(after);
  }
}

}  // namespace plexus
