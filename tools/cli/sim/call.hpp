// SPDX-License-Identifier: Apache-2.0
// A cluster and a call, as the flags of `plexus sim` describe them, and its simulation.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/base/result.hpp"
#include "core/schedule/candidate.hpp"
#include "tools/sim/simulate.hpp"

namespace plexus {

struct SimOptions {
  Collective collective = Collective::kAllReduce;
  int nranks = 8;
  int ranks_per_node = 1;
  int datacenters = 1;
  size_t bytes_first = 8;
  size_t bytes_last = 0;  // 0: as bytes_first
  int factor = 4;
  std::vector<std::string> families;  // empty: all
  Protocol protocol = Protocol::kSimple;
  int channels = 0;  // 0: as many as the algorithm has different programs
  int root = 0;
  size_t slot_bytes = kSlotBytesOfNetwork;
  std::string program;  // a file, in place of algorithms of the table
  // costs
  double latency_us = 2;
  double gbit_per_s = 200;
  double near_latency_us = 0.5;
  double near_gbit_per_s = 1600;
  double wide_latency_us = 5000;
  double wide_gbit_per_s = 100;
  double message_us = 0;
  double reduce_gb_per_s = 0;  // 0: infinitely fast
  std::string fabric_file;
  // policies
  std::vector<std::string> tuners;
  bool sweeps = false;  // all collectives, and 2, 4, 8, ... ranks
  std::string workload;
  std::string trace;
  std::string svg;
  std::string json;
};

struct SimRow {
  uint64_t bytes = 0;
  std::string algorithm;
  int channels = 1;
  SimResult result;
  size_t simulated = 0;  // ranks

  [[nodiscard]] double algbw_gb_per_s() const;
};

/// The ranks of `options` in order, for the costs that tuners are told.
ChannelOrder order_of(const SimOptions& options, const Fabric* fabric);

/// `fabric` may be nullptr.
Result<SimRow> simulate_call(const SimOptions& options,
                             const Algorithm& algorithm,
                             uint64_t bytes,
                             const Fabric* fabric);

/// The algorithms of the table for the collective that the options leave.
Result<std::vector<const Algorithm*>> list_algorithms(const SimOptions& options);

}  // namespace plexus
