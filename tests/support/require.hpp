// SPDX-License-Identifier: Apache-2.0
// For test programs of several processes, which have no test framework: a condition that does not
// hold ends the process with exit code 1 and says so on stdout.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <nccl.h>
#include <unistd.h>

namespace plexus::testing_require {

inline void require(bool holds, const char* what) {
  if (!holds) {
    std::printf("process %d: not so: %s; last error: %s\n", getpid(), what,
                ncclGetLastError(nullptr));
    std::fflush(stdout);
    _exit(1);
  }
}

/// A time limit, stretched where tests run slower (under sanitizers).
inline double bound_seconds(double seconds) {
  const char* const factor = std::getenv("PLEXUS_TEST_TIME_FACTOR");
  return seconds * (factor == nullptr ? 1 : std::atof(factor));
}

}  // namespace plexus::testing_require

#define REQUIRE(condition) plexus::testing_require::require((condition), #condition)
