// SPDX-License-Identifier: Apache-2.0
// Any bytes as a script of net-chaos, for the simulator. What is accepted makes messages later, by
// a finite time, and never earlier.
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "tools/sim/faults.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto faults =
      plexus::SimFaults::parse({reinterpret_cast<const char*>(data), size}, uint64_t{1});
  if (faults.has_error()) {
    return 0;
  }
  for (int rank = 0; rank < 4; ++rank) {
    const plexus::SimLinkFaults link = faults.value().of_link(
        {.rank = rank, .peer = 1, .number = 0}, {.rank = 1, .peer = rank, .number = 2});
    for (const double us : {link.delay_us, link.jitter_us, link.us_per_byte, link.stall_us,
                            faults.value().slow_us(rank)}) {
      if (!std::isfinite(us) || us < 0) {
        std::abort();
      }
    }
  }
  return 0;
}
