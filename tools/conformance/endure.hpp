// SPDX-License-Identifier: Apache-2.0
// The long run of a network: two processes with three threads each exchange messages of sizes
// around every power of two and the device's limit over several connections for a given time, make
// everything anew every few rounds, and look at what the process holds. All is drawn from a seed.
#pragma once

#include "tools/conformance/runner.hpp"

namespace plexus::conformance {

struct Endurance {
  uint64_t seed = 0;
  double seconds = 0;
  uint64_t epochs = 0;  // contexts and connections are made anew in each
  uint64_t messages = 0;
  uint64_t bytes = 0;
  uint64_t resident_begin = 0;  // bytes of the receiving process after the first epochs
  uint64_t resident_end = 0;
  std::string failure;  // "": nothing was wrong
};

/// For `time`, and at least for six epochs.
[[nodiscard]] Result<Endurance> endure(const Subject& subject, seconds time, uint64_t seed);

}  // namespace plexus::conformance
