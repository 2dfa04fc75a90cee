// SPDX-License-Identifier: Apache-2.0
// The order of one channel's ranks, which the topology decides.
#pragma once

#include <vector>

namespace plexus {

struct ChannelOrder {
  std::vector<int> ring;         // [nranks]
  std::vector<int> nodes;        // places in it where the ranks of a host begin, rising from 0
  std::vector<int> datacenters;  // by place: the datacenter, from 0; empty: all are in one
  friend bool operator==(const ChannelOrder&, const ChannelOrder&) = default;
};

}  // namespace plexus
