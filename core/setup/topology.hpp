// SPDX-License-Identifier: Apache-2.0
// The topology of a communicator: the order of its ranks in each channel. The lowest rank of each
// group of ranks that share memory describes its host, searches, and sends the result, usually one
// part (core/topo/part.hpp), to all others; every rank then joins the parts. Of the ranks in one
// process, the first to arrive computes for all.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "core/base/config.hpp"
#include "core/control/exchange.hpp"
#include "core/datacenter/datacenter_map.hpp"
#include "core/peers/peer_info.hpp"
#include "core/plugin/net_plugin.hpp"
#include "core/schedule/plan.hpp"
#include "core/setup/group_cache.hpp"
#include "core/topo/detect.hpp"
#include "core/topo/part.hpp"
#include "core/tuning/loop_costs.hpp"

namespace plexus {

struct CommTopology {
  int parts = 0;
  std::vector<ChannelOrder> orders;  // at least one
  DatacenterMap datacenters;         // by part
  std::vector<int> datacenter_of;    // by rank
  std::shared_ptr<const LoopCosts> costs;
  double near_gb_per_s = 0;  // bandwidth from one device to another of its host, over all channels
  bool nvlink = false;       // that bandwidth is NVLink's, or a host's ranks share one device
};

/// Ranks that reach each other in memory, ascending in each group.
using HostGroups = std::vector<std::vector<HostRank>>;

/// Topologies that the ranks of one process share. Threads: any.
class TopologyCache {
 public:
  GroupCache<CommTopology> of_groups;
  GroupCache<HostGroups> host_groups;
  /// The description of this host with these ranks and NICs.
  Result<XmlElement> describe(const DetectRequest& request);

 private:
  std::mutex machine_mutex_;
  std::optional<Machine> machine_;  // guarded by machine_mutex_
};

struct TopologyInput {
  int rank = 0;
  uint64_t group = 0;
  std::span<const PeerInfo> infos;
  const Config* config = nullptr;
  const NetContext* net = nullptr;  // null: no rank needs a network
  Exchange* exchange = nullptr;
  const std::atomic<bool>* give_up = nullptr;
  TopologyCache* cache = nullptr;
};

/// Collective, unless all ranks are in one process.
Result<std::shared_ptr<const CommTopology>> agree_on_topology(const TopologyInput& input);

/// The groups of a communicator, ordered by their first ranks. Pure.
HostGroups group_by_reach(std::span<const PeerInfo> infos);

/// Joins the parts (by group, as sent by the leaders). `sites`: the node of each group with its
/// datacenter location. Pure.
Result<CommTopology> join_parts(std::span<const std::vector<PartChannels>> channels,
                                std::span<const DatacenterNode> sites);

}  // namespace plexus
