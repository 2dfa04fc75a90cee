// SPDX-License-Identifier: Apache-2.0
// The order of the ranks in one channel, as determined by the topology.
#pragma once

#include <vector>

#include "kernels/program/algorithms.hpp"

namespace plexus {

struct ChannelOrder {
  std::vector<int> ring;  // [nranks]
  // positions in `ring` at which the ranks of a host begin, ascending from 0
  std::vector<int> nodes;
  // [position in `ring`]: the datacenter, from 0; empty: one datacenter
  std::vector<int> datacenters;
  // [datacenter]: the one above it in trees, -1 at the root; empty: the one before it
  std::vector<int> above = {};
  friend bool operator==(const ChannelOrder&, const ChannelOrder&) = default;
};

/// What the recording of `rank`'s program needs of the order, from which it borrows; root, variant,
/// heads and joins are the caller's to set.
inline RecordInput record_input_of(const ChannelOrder& order, int rank) {
  return {.rank = rank,
          .ring = order.ring,
          .nodes = order.nodes,
          .datacenters = order.datacenters,
          .above = order.above};
}

}  // namespace plexus
