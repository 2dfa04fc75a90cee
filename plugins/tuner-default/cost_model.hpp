// SPDX-License-Identifier: Apache-2.0
// How long a call takes, by the alpha-beta model (Hockney, "The communication challenge for MPP",
// 1994) with a cost per message: pure functions of what the host tells and of a calibration.
//
// A loop of an algorithm has `rounds` messages one after the other, each with the full latency; the
// other messages that the busiest rank moves follow without waiting and cost their overhead and
// bytes.
#pragma once

#include <array>
#include <cstdint>

#include "plugin-api/plexus_tuner.h"

namespace plexus::tuner_default {

/// What one message costs over one class of link.
struct LinkCost {
  double latency_us;  // until the receiver can use the first byte, when it was waiting
  double message_us;  // of one more message, when none is waited for
  double us_per_byte;
};

/// By PLEXUS_LINK_*.
using Calibration = std::array<LinkCost, PLEXUS_LINK_CLASSES>;

/// Measured on an idle machine with 2 cores (AMD EPYC, docs/performance.md); `plexus tune` measures
/// another.
inline constexpr Calibration kDefaultCalibration = {{
    {0.15, 0.04, 4.5e-5},  // process
    {0.16, 0.05, 5.0e-5},  // host
    {6.0, 1.5, 2.0e-4},    // network: loopback TCP
    {500.0, 2.0, 8.0e-4},  // far: 10 Gbit/s, 1 ms round trip
}};

/// Microseconds of one call done as `candidate` says; < 0: it cannot say.
double predict_us(const Calibration& calibration,
                  const plexus_tuner_comm_t& comm,
                  const plexus_tuner_call_t& call,
                  const plexus_tuner_candidate_t& candidate);

}  // namespace plexus::tuner_default
