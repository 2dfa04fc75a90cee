// SPDX-License-Identifier: Apache-2.0
// NCCL's own model: what it expects each of its algorithms and protocols to take over the channels
// of a search, and which of them it therefore chooses. It predicts NCCL's choices, not durations
// (measured times are up to three times these) and not Plexus's schedules, whose costs are those of
// plugins/tuner-default: NCCL counts a broadcast along a ring as one hop, since it compares it with
// nothing else. Without CollNet.
//
//   const NcclModel model(describe_for_nccl(cluster));
//   const NcclAlternative& best = model.choose(NcclCollective::kAllReduce, 1 << 20);  // ring, LL
//   model.time_us(NcclCollective::kAllReduce, best, 1 << 20);
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/topo/cluster.hpp"

namespace plexus {

enum class NcclCollective : uint8_t { kBroadcast, kReduce, kAllGather, kReduceScatter, kAllReduce };
inline constexpr size_t kNcclCollectives = 5;
/// In the order in which NCCL compares them.
enum class NcclAlgorithm : uint8_t { kTree, kRing, kNvls, kNvlsTree, kPat };
enum class NcclProtocol : uint8_t { kLL, kLL128, kSimple };
using ByProtocol = std::array<double, 3>;

const char* name(NcclCollective collective);
const char* name(NcclAlgorithm algorithm);
const char* name(NcclProtocol protocol);

/// The channels as the model reads them.
struct NcclGraph {
  int channels = 0;  // of the search; 0: there are none
  double intra_gb_per_s = 0;
  double inter_gb_per_s = 0;
  double latency_us = 0;
  PathType intra_type = PathType::kSys;
  PathType inter_type = PathType::kSys;
  Pattern pattern = Pattern::kRing;
  bool same_channels = false;
};

struct NcclCluster {
  int ranks = 1;
  int nodes = 1;
  int channels = 1;  // that calls use, a multiple of those of the search
  int sm_min = 0;
  int sm_max = 0;
  CpuArch arch = CpuArch::kX86;
  bool any_amd = false;  // of the CPUs
  NcclGraph ring = {};
  NcclGraph tree = {};
  NcclGraph nvls = {};
};

NcclCluster describe_for_nccl(const ClusterChannels& cluster);

struct NcclAlternative {
  NcclAlgorithm algorithm;
  NcclProtocol protocol;
  double latency_us;
  double gb_per_s;  // of the call's bytes
};

class NcclModel {
 public:
  explicit NcclModel(const NcclCluster& cluster);

  /// Those that NCCL has for this cluster.
  [[nodiscard]] const std::vector<NcclAlternative>& alternatives(NcclCollective collective) const;
  /// `bytes`: as NCCL counts them, of the whole result of an all-gather, the whole input of a
  /// reduce-scatter.
  [[nodiscard]] double time_us(NcclCollective collective,
                               const NcclAlternative& alternative,
                               size_t bytes) const;
  [[nodiscard]] const NcclAlternative& choose(NcclCollective collective, size_t bytes) const;

 private:
  NcclCluster cluster_;
  std::array<std::vector<NcclAlternative>, kNcclCollectives> alternatives_;
};

}  // namespace plexus
