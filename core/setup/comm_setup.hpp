// SPDX-License-Identifier: Apache-2.0
// What is determined about a communicator before it is made, as one value; and what init needs from
// the process for that.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

#include "plugin-api/plexus_tuner.h"

#include "core/base/config.hpp"
#include "core/control/exchange.hpp"
#include "core/device/device_runtime.hpp"
#include "core/os/shared_memory.hpp"
#include "core/peers/peer_info.hpp"
#include "core/plugin/collnet_registry.hpp"
#include "core/plugin/registry.hpp"
#include "core/programs/program_set.hpp"
#include "core/setup/collnet.hpp"
#include "core/setup/group_cache.hpp"
#include "core/setup/topology.hpp"
#include "core/transport/network/net_set.hpp"
#include "core/tuning/algorithm_filter.hpp"
#include "core/tuning/copy_methods.hpp"
#include "core/tuning/rates_file.hpp"

namespace plexus {

/// Objects that the ranks of a process share during setup. Borrowed.
struct SetupContext {
  NetPluginCache* net_plugins;
  CollnetPluginCache* collnet_plugins;
  TopologyCache* topologies;
  GroupCache<std::vector<PeerInfo>>* infos;
  GroupCache<ProgramSet>* programs;
  RatesCache* rates;
  GroupCache<SharedMemory>* shown;
  DeviceRuntime* devices;  // nullptr: this build is without CUDA
  AgentHooks hooks = {};
};

/// Equal on all ranks, except `rank` and what is open in this process: exchange, networks and
/// collnet.
struct CommSetup {
  int rank = 0;
  int nranks = 0;
  uint64_t group = 0;  // unique for each communicator
  std::unique_ptr<Exchange> exchange;
  /// [nranks]; shared by the ranks of this process.
  std::shared_ptr<const std::vector<PeerInfo>> infos;
  Config config;
  std::chrono::steady_clock::time_point started;  // when init was called
  std::unique_ptr<NetSet> nets;                   // nullptr: no rank needs a network
  std::shared_ptr<const CommTopology> topology;   // shared with the ranks of this process
  std::shared_ptr<const ProgramSet> programs;     // PLEXUS_PROGRAM_PATH; likewise shared
  AlgorithmFilter filter;                         // NCCL_ALGO, NCCL_PROTO
  uint32_t slot_bytes = 0;
  HostCopyMethods copy_methods;  // between processes of one host
  plexus_tuner_comm_t tuner_facts{};
  CollnetOpen collnet;
  int channels_min = 1;  // possible on all ranks
  int channels_max = 1;
  int blocks = 0;               // see blocks_of_rank()
  int net_channels = 1;         // that share a long message over the network
  uint32_t ranks_per_core = 1;  // of this rank's cores, rounded up

  [[nodiscard]] const PeerInfo& mine() const { return (*infos)[static_cast<size_t>(rank)]; }
};

}  // namespace plexus
