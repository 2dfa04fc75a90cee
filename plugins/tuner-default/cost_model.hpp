// SPDX-License-Identifier: Apache-2.0
// How long a call takes, by the alpha-beta model (Hockney, "The communication challenge for MPP",
// 1994) with a cost per message, per combined byte, and of ranks that share cores: pure functions
// of what the host tells and of a calibration.
//
// A loop of an algorithm has `rounds` messages one after the other, each with the full latency. The
// busiest rank moves and combines its chunks one by one, and the cores of all hosts move those of
// all ranks: the slower of the two counts. Over several datacenters, what leaves the busiest one
// shares its link: that may be the slowest of the three, and messages between datacenters have the
// latency of that link.
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

/// What moving data costs a host, whatever the link.
struct HostCost {
  double reduce_us_per_byte;  // of combining a chunk with another, besides moving it
  double turn_us;  // of a round, for each rank on a core that is shared: one waits for the other
  /// Slots of many peers do not stay in a core's cache: with so much more time a byte moves, at
  /// most, in an algorithm that sends to many peers at once.
  double spread;
};

struct Calibration {
  std::array<LinkCost, PLEXUS_LINK_CLASSES> links;  // by PLEXUS_LINK_*
  HostCost host;
};

/// Fitted by `plexus tune` to an AMD EPYC virtual machine with 2 cores (docs/performance.md).
inline constexpr Calibration kDefaultCalibration = {
    {{
        {0.15, 0.12, 3.0e-5},  // process
        {0.16, 0.15, 3.5e-5},  // host
        {6.0, 1.5, 2.0e-4},    // network: loopback TCP
        {500.0, 2.0, 8.0e-4},  // xdc: 10 Gbit/s, 1 ms round trip
    }},
    {8.0e-6, 0.45, 0.5},
};

/// Microseconds of one call done as `candidate` says; < 0: it cannot say.
double predict_us(const Calibration& calibration,
                  const plexus_tuner_comm_t& comm,
                  const plexus_tuner_call_t& call,
                  const plexus_tuner_candidate_t& candidate);

}  // namespace plexus::tuner_default
