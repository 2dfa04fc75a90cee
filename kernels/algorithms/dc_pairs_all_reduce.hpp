// SPDX-License-Identifier: Apache-2.0
// All-reduce over datacenters for small messages with the fewest rounds. First, every rank sends
// its input to all ranks of its datacenter and sums all inputs in ring order. Then every rank gets
// the sum of each other datacenter from its partner there. Rounds: one inside and one between
// datacenters. All ranks combine in the same order and get the same bits. Chunks per loop: 1.
// Messages that enter a datacenter: one for each of its ranks from every other datacenter.
#pragma once

#include "kernels/algorithms/hierarchical_blocks.hpp"

namespace plexus {

/// All other members of the own datacenter, in ring order.
struct DatacenterMates {
  Hierarchy by;
  [[nodiscard]] PLEXUS_HOST_DEVICE constexpr int size() const { return by.size() - 1; }
  PLEXUS_HOST_DEVICE constexpr int operator[](int at) const {
    return by.rank(by.datacenter, at < by.index ? at : at + 1);
  }
  [[nodiscard]] PLEXUS_HOST_DEVICE constexpr int own_position() const { return by.index; }
};

template <class Prims>
PLEXUS_HOST_DEVICE void dc_pairs_all_reduce(Prims& prims, const Hierarchy& by) {
  const DatacenterMates mates{by};
  Buffer held = Buffer::kInput;
  // Sent by bytes, because the sums overwrite what is sent.
  if (by.size() > 1) {
    prims.send(Buffer::kInput, 0, mates, ByAddress::kNo);
    prims.recv_reduce_copy(mates, Buffer::kInput, Buffer::kOutput, 0, Complete::kNo);
    held = Buffer::kOutput;
  }
  for_partners(by, by.index, [&](int rank) { prims.send(held, 0, rank, ByAddress::kNo); });
  prims.recv_reduce_copy(Partners{by}, held, Buffer::kOutput, 0, Complete::kYes);
}

}  // namespace plexus
