// SPDX-License-Identifier: Apache-2.0
// The search for channels inside one node: as many as fit the links' bandwidth, at the highest
// speed, over the best types of paths. Budgets are counted steps, never time, so that every rank of
// every machine finds the same. The order in which everything is tried is NCCL's, and so are the
// results.
#pragma once

#include <optional>

#include "core/topo/channels.hpp"
#include "core/topo/options.hpp"
#include "core/topo/system.hpp"

namespace plexus {

inline constexpr int kRingChannelsMax = 32;

struct SearchRequest {
  Pattern pattern = Pattern::kRing;
  int channels_min = 1;
  int channels_max = kRingChannelsMax;
};

/// `system` with its paths. NVLS: no channels when the machine cannot do it; the others always give
/// at least one, if need be one in the order of the devices at a tenth of a GB/s.
ChannelGraph search_channels(const System& system,
                             const TopoOptions& options,
                             const SearchRequest& request);

struct NodeChannels {
  ChannelGraph ring;
  ChannelGraph tree;  // as many channels as the ring
  ChannelGraph nvls;
};
NodeChannels search_node(const System& system, const TopoOptions& options);

/// Channels that the user gave (graph_file.hpp); those that are missing are searched for.
struct GivenChannels {
  std::optional<ChannelGraph> ring;
  std::optional<ChannelGraph> tree;
  std::optional<ChannelGraph> nvls;
};
NodeChannels search_node(const System& system,
                         const TopoOptions& options,
                         const GivenChannels& given);

}  // namespace plexus
