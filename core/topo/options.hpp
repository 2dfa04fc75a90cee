// SPDX-License-Identifier: Apache-2.0
// What the user may override (NCCL's variables of the same names), and what a machine's description
// does not contain: whether peer access and shared memory work between two ranks.
#pragma once

#include <optional>
#include <set>
#include <utility>

#include "core/topo/types.hpp"

namespace plexus {

/// Pairs of ranks (lower first) between which the driver or the container prevents access.
struct RankReach {
  bool p2p = true;  // false: no pair has peer access
  bool shm = true;
  bool gdr = true;
  std::set<std::pair<int, int>> without_p2p;
  std::set<std::pair<int, int>> without_shm;
};

enum class NetPolicy : uint8_t { kAuto, kAll, kMax };

struct TopoOptions {
  RankReach reach;
  std::optional<PathType> p2p_level;  // NCCL_P2P_LEVEL; NCCL_P2P_DISABLE=1 is kLoc
  std::optional<PathType> net_gdr_level;
  std::optional<bool> net_gdr_read;
  bool net_gdr_c2c = true;
  bool shm_disable = false;
  bool nvb_disable = false;
  bool pxn_disable = false;
  bool pxn_c2c = true;
  bool net_disable_intra = false;  // true: the network is never preferred inside a node
  int cross_nic = 2;               // 0: never, 1: always, 2: when that gives more bandwidth
  NetPolicy nets_policy = NetPolicy::kAuto;
  int nets_per_gpu_max = 0;  // only with kMax
};

}  // namespace plexus
