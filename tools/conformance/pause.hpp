// SPDX-License-Identifier: Apache-2.0
// What a thread of the kit does between two looks at something that it waits for. Most waits end
// within microseconds, so it yields at first; then it sleeps, so that checks whose waits last long
// (connections that nobody accepts, deadlines) leave the cores to what else runs.
#pragma once

#include <chrono>

namespace plexus::conformance {

class Pause {
 public:
  using Clock = std::chrono::steady_clock;
  /// Yields or sleeps, by the time since construction or the last reset().
  void rest() const noexcept;
  /// What is waited for has moved.
  void reset() noexcept { begin_ = Clock::now(); }

 private:
  Clock::time_point begin_ = Clock::now();
};

}  // namespace plexus::conformance
