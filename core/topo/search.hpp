// SPDX-License-Identifier: Apache-2.0
// The search for channels inside one node: as many as the links' bandwidth allows, at the highest
// speed, over the best path types. Budgets count steps instead of time, so that every rank finds
// the same on every machine. Candidates are tried in NCCL's order, which gives NCCL's results.
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

/// `system` must have its paths. Returns at least one channel, if necessary one in device order at
/// 0.1 GB/s; for NVLS none when the machine does not support it.
ChannelGraph search_channels(const System& system,
                             const TopoOptions& options,
                             const SearchRequest& request);

struct NodeChannels {
  ChannelGraph ring;
  ChannelGraph tree;  // as many channels as the ring
  ChannelGraph nvls;
};
NodeChannels search_node(const System& system, const TopoOptions& options);

/// Channels that the user gave (graph_file.hpp); missing ones are searched.
struct GivenChannels {
  std::optional<ChannelGraph> ring;
  std::optional<ChannelGraph> tree;
  std::optional<ChannelGraph> nvls;
};
NodeChannels search_node(const System& system,
                         const TopoOptions& options,
                         const GivenChannels& given);

}  // namespace plexus
