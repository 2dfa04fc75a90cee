// SPDX-License-Identifier: Apache-2.0
#include "tools/conformance/pause.hpp"

#include <sched.h>
#include <thread>

namespace plexus::conformance {
namespace {

constexpr auto kYieldFor = std::chrono::milliseconds(2);
/// Short enough for transfers that advance by a socket buffer per call of test.
constexpr auto kSleep = std::chrono::microseconds(100);

}  // namespace

void Pause::rest() const noexcept {
  if (Clock::now() - begin_ < kYieldFor) {
    ::sched_yield();  // the other process may need this core
  } else {
    std::this_thread::sleep_for(kSleep);
  }
}

}  // namespace plexus::conformance
