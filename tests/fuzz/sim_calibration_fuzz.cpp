// SPDX-License-Identifier: Apache-2.0
// Any bytes as the costs of a host. What is accepted costs a time from 0 up, for any message.
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "tools/cli/sim/calibration.hpp"

namespace {

void check(bool holds) {
  if (!holds) {
    std::abort();
  }
}

void check(const plexus::SimCurve& curve, double slot_bytes) {
  for (const double bytes : {1.0, 4096.0, 1e12}) {
    for (const bool is_one : {false, true}) {
      const double us = curve.of_message(bytes, 4 * bytes, slot_bytes, is_one);
      check(std::isfinite(us) && us >= 0);
    }
  }
}

void check(const plexus::SimWork& work) {
  for (const plexus::SimEnds* const ends : {&work.both_ways, &work.one_way}) {
    for (const plexus::SimCurve* const curve :
         {&ends->send, &ends->recv, &ends->combine, &ends->combine_apart}) {
      check(*curve, work.slot_bytes);
    }
  }
  check(work.copy, work.slot_bytes);
  for (const double bytes : {0.0, 4096.0, 1e12}) {
    const double part = work.one_core.at(bytes, 1);
    check(part >= 0 && part <= 1 && work.crowd_us_per_byte.at(bytes, 0) >= 0);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto costs = plexus::parse_sim_calibration({reinterpret_cast<const char*>(data), size});
  if (costs.has_value()) {
    check(costs.value().cores > 0 && costs.value().turn_us >= 0);
    check(costs.value().host);
    check(costs.value().net);
  }
  return 0;
}
