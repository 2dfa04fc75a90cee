// SPDX-License-Identifier: Apache-2.0
// The duration of a call by the alpha-beta model (Hockney, "The communication challenge for MPP",
// 1994) with costs per message, per combined byte, and for ranks that share cores. Pure functions
// of what the host reports and of a calibration.
//
// A loop of an algorithm has `rounds` messages one after the other, each with the full latency. The
// busiest rank moves and combines its chunks one by one, and the cores of all hosts move those of
// all ranks: the slower of the two counts. Over several datacenters, the traffic of the busiest one
// shares its link, which may be the slowest of the three, and messages between datacenters have
// that link's latency.
#pragma once

#include <array>
#include <cstdint>

#include "plugin-api/plexus_tuner.h"

namespace plexus::tuner_default {

/// Costs of messages over one class of link.
struct LinkCost {
  double latency_us;  // until a waiting receiver can use the first byte
  double message_us;  // for one more message, when nothing waits for it
  double us_per_byte;
};

/// Costs of moving data on a host, for any link.
struct HostCost {
  double reduce_us_per_byte;  // for combining a chunk with another, in addition to moving it
  // per round, for each rank on a shared core, because one rank waits for the other
  double turn_us;
  /// Slots of many peers do not stay in a core's cache: the largest relative increase of the time
  /// per byte in an algorithm that sends to many peers at once.
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
    {2.2e-5, 1.1, 0.5},
};

/// PLEXUS_LINK_* of the slowest class that joins any two ranks.
uint32_t slowest_class(const plexus_tuner_comm_t& comm);

/// Whether the host says what of a candidate goes between hosts; hosts before 1.8 do not.
bool tells_net(const plexus_tuner_comm_t& comm, const plexus_tuner_candidate_t& candidate);

/// Duration in us of one call done as `candidate` says; < 0: unknown.
double predict_us(const Calibration& calibration,
                  const plexus_tuner_comm_t& comm,
                  const plexus_tuner_call_t& call,
                  const plexus_tuner_candidate_t& candidate);

}  // namespace plexus::tuner_default
