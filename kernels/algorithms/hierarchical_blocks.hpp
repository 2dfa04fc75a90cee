// SPDX-License-Identifier: Apache-2.0
// All-gather, reduce-scatter and all-to-all over datacenters. Every rank has one partner in each
// other datacenter; the ranks of a datacenter are divided evenly among those of the other.
//
// All-gather: a rank's block goes to its partners, and from there round the rings of their
// datacenters.
// Reduce-scatter: the reverse. Every datacenter sums the block for a rank at that rank's partner,
// which sends the sum. For both, each block of another datacenter enters (or leaves) a datacenter
// once, which is the minimum. Chunks per loop: nranks.
//
// All-to-all: the blocks of a datacenter's ranks for one rank of another datacenter go through that
// rank's partner, so that a rank's connections to other datacenters number as many as the
// datacenters, not the ranks. The bytes between datacenters are those of any all-to-all. Chunks per
// loop: nranks.
#pragma once

#include "kernels/algorithms/hierarchy.hpp"

namespace plexus {

/// The own partners in all other datacenters.
struct Partners {
  Hierarchy by;
  [[nodiscard]] PLEXUS_HOST_DEVICE constexpr int size() const { return by.datacenters - 1; }
  PLEXUS_HOST_DEVICE constexpr int operator[](int at) const {
    const int of = at < by.datacenter ? at : at + 1;
    return PartnerBlocks{by}.partner(by.datacenter, by.index, of);
  }
  [[nodiscard]] PLEXUS_HOST_DEVICE constexpr int own_position() const { return by.datacenter; }
};

/// Calls `use(rank)` for the ranks of other datacenters whose partner in this datacenter is
/// `member`.
template <class Use>
PLEXUS_HOST_DEVICE void for_partners(const Hierarchy& by, int member, const Use& use) {
  const PartnerBlocks blocks{by};
  for (int k = 0; k < blocks.size(member); ++k) {
    use(blocks.chunk(member, k));
  }
}

/// Lanes: 0 to partners, 1 from partners, 2 inside the datacenter.
template <class Prims>
PLEXUS_HOST_DEVICE void hierarchical_all_gather(Prims& prims, const Hierarchy& by) {
  if (prims.lane(0)) {
    prims.copy_send(Buffer::kInput, Buffer::kOutput, by.self(), Partners{by});
  }
  if (prims.lane(1)) {
    for_partners(by, by.index, [&](int rank) { prims.recv(rank, Buffer::kOutput, rank); });
  }
  if (by.size() > 1 && prims.lane(2)) {
    prims.after(0);
    gather_in_datacenter(prims, DatacenterRing{by, 1}, OwnBlocks{by});
    const PartnerBlocks others{by};
    if (others.size(by.index) > 0) {
      prims.after(1);
    }
    gather_in_datacenter(prims, DatacenterRing{by, 1}, others);
  }
}

/// Lanes: 0 inside the datacenter and the sums for others, 1 the own block.
template <class Prims>
PLEXUS_HOST_DEVICE void hierarchical_reduce_scatter(Prims& prims, const Hierarchy& by) {
  const Buffer held = by.size() == 1 ? Buffer::kInput : Buffer::kOutput;
  const DatacenterRing ring{by, 1};
  if (prims.lane(0)) {
    if (by.size() == 1) {
      for_partners(by, 0, [&](int rank) { prims.send(Buffer::kInput, rank, rank); });
    } else {
      reduce_in_datacenter(prims, ring, PartnerBlocks{by}, [&](int rank) {
        prims.recv_reduce_send(ring.prev(), Buffer::kInput, rank, rank);
      });
      reduce_in_datacenter(prims, ring, OwnBlocks{by}, [&](int rank) {
        prims.recv_reduce_copy(ring.prev(), Buffer::kInput, Buffer::kOutput, rank, Complete::kNo);
      });
    }
  }
  if (prims.lane(1)) {
    if (by.size() > 1) {
      prims.after(0);
    }
    prims.recv_reduce_copy(Partners{by}, held, Buffer::kOutput, by.self(), Complete::kYes);
  }
}

/// Lanes: 0 the own blocks to the members of the datacenter; 1 receives their blocks and forwards
/// them to other datacenters; 2 and more receive from those, one lane each.
template <class Prims>
PLEXUS_HOST_DEVICE void hierarchical_all_to_all(Prims& prims, const Hierarchy& by) {
  if (prims.lane(0)) {
    for (int step = 1; step < by.size(); ++step) {
      const int member = (by.index + step) % by.size();
      const int to = by.rank(by.datacenter, member);
      prims.send(Buffer::kInput, to, to);
      for_partners(by, member, [&](int rank) { prims.send(Buffer::kInput, rank, to); });
    }
  }
  if (prims.lane(1)) {
    prims.copy(Buffer::kInput, Buffer::kOutput, by.self());
    for (int member = 0; member < by.size(); ++member) {
      const int from = by.rank(by.datacenter, member);
      if (member != by.index) {
        prims.recv(from, Buffer::kOutput, from);
        for_partners(by, by.index, [&](int rank) { prims.recv_send(from, rank); });
      } else {
        for_partners(by, by.index, [&](int rank) { prims.send(Buffer::kInput, rank, rank); });
      }
    }
  }
  const Partners partners{by};
  for (int at = 0; at < partners.size(); ++at) {
    const int other = at < by.datacenter ? at : at + 1;
    if (prims.lane(2 + at)) {
      for (int member = 0; member < by.size(other); ++member) {
        prims.recv(partners[at], Buffer::kOutput, by.rank(other, member));
      }
    }
  }
}

}  // namespace plexus
