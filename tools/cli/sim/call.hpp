// SPDX-License-Identifier: Apache-2.0
// A cluster and a call, as the flags of `plexus sim` describe them, and its simulation.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/base/result.hpp"
#include "core/tuning/candidate.hpp"
#include "tools/sim/simulate.hpp"
#include "tools/workload/workload.hpp"

namespace plexus {

struct SimOptions {
  Collective collective = Collective::kAllReduce;
  int nranks = 8;
  int ranks_per_node = 1;
  int datacenters = 1;
  // Whether the channels of rings go from one datacenter to the other at different nodes. nullopt:
  // rings follow the numbers of ranks, in all channels.
  std::optional<bool> scatters;
  size_t bytes_first = 8;
  size_t bytes_last = 0;  // 0: as bytes_first
  int factor = 4;
  std::vector<std::string> families;  // empty: all
  Protocol protocol = Protocol::kSimple;
  int channels = 0;  // 0: as many as the algorithm has different programs
  int root = 0;
  std::optional<size_t> slot_bytes;  // as the library, if there is a calibration
  std::string program;               // a file, in place of algorithms of the table
  // costs
  static constexpr double kLatencyUs = 2;  // of flags that are not given
  static constexpr double kGbitPerS = 200;
  static constexpr double kNearLatencyUs = 0.5;
  static constexpr double kNearGbitPerS = 1600;
  std::optional<double> latency_us;
  std::optional<double> gbit_per_s;
  std::optional<double> near_latency_us;
  std::optional<double> near_gbit_per_s;
  double wide_latency_us = 5000;
  double wide_gbit_per_s = 100;
  double message_us = 0;
  double reduce_gb_per_s = 0;  // 0: infinitely fast
  // What messages cost processors; between ranks of a node as over sockets, if `near_is_net`.
  std::optional<SimCalibration> calibration;
  bool near_is_net = false;
  int cores = 0;  // of a node; 0: those of the calibration
  // Ranks that share cores are where `plexus perf --bind share` puts them; else the kernel places
  // them. Their order on a core is any.
  bool are_bound = false;
  int calls = 1;
  std::string faults_text;  // a script, or @FILE
  int seed = 1;
  std::optional<SimFaults> faults;  // of the text
  std::string fabric_file;
  // policies
  std::vector<std::string> tuners;
  bool sweeps = false;                // all collectives, and 2, 4, 8, ... ranks
  std::vector<std::string> workload;  // a file, or one of each rank
  bool has_ranks = false;             // the flags say it, and not the workload
  bool has_ranks_per_node = false;
  std::string order;                 // of its groups, from the inside
  std::vector<std::string> what_if;  // changes to it
  bool sensitivity = false;          // standard ones
  std::string exported;              // file for it in another format
  std::string trace;
  std::string svg;
  std::string links;  // file for a map of bytes by link
  std::string json;
};

struct SimRow {
  uint64_t bytes = 0;
  std::string algorithm;
  int channels = 1;
  SimResult result;
  size_t simulated = 0;  // ranks

  /// An Error says who waits for whom, if a cut link keeps the call from ending.
  [[nodiscard]] Result<void> check_ends() const;

  uint64_t node_bytes = 0;     // SimJob's
  double node_wide_bytes = 0;  // sent to other datacenters by the node that sends most

  [[nodiscard]] double algbw_gb_per_s() const;
  /// What the node that sends most sends to other datacenters, over the time of the call.
  [[nodiscard]] double node_wide_gbit_per_s() const;
};

/// The ranks of `options` in order, for the costs that tuners are told.
ChannelOrder order_of(const SimOptions& options, const Fabric* fabric);

/// Costs of links and messages: those of flags, or their defaults.
SimCosts costs_of(const SimOptions& options, bool on_fabric);
uint32_t slot_bytes_of(const SimOptions& options);

/// `fabric` may be nullptr.
Result<SimRow> simulate_call(const SimOptions& options,
                             const Algorithm& algorithm,
                             uint64_t bytes,
                             const Fabric* fabric);

/// Bytes that a call sends from rank (row) to rank (column), at most kMappedMax of them; with more
/// ranks, from node to node. kInvalidArgument: there are more nodes than that, too.
inline constexpr int kMappedMax = 64;
Result<std::vector<std::vector<uint64_t>>> count_bytes_by_link(const SimOptions& options,
                                                               const Algorithm& algorithm,
                                                               uint64_t bytes,
                                                               const Fabric* fabric);

/// A group of sends and receives.
Result<SimRow> simulate_exchanges(const SimOptions& options,
                                  const std::vector<WorkloadExchange>& exchanges,
                                  const Fabric* fabric);

/// The algorithms of the table for the collective that the options leave.
Result<std::vector<const Algorithm*>> list_algorithms(const SimOptions& options);

}  // namespace plexus
