// SPDX-License-Identifier: Apache-2.0
// Broadcast and reduce over datacenters: the message crosses the border of the root's datacenter
// once per other datacenter, in shards, by all ranks. In the root's datacenter it moves along a
// chain; the owner of a shard there passes it to its owners in the other datacenters, where it
// moves round the ring. A reduction runs in reverse. Chunks per loop: the number of ranks of the
// largest datacenter.
#pragma once

#include "kernels/algorithms/hierarchy.hpp"

namespace plexus {

/// A chain through the root's datacenter; place 0 is the root.
struct RootChain {
  Hierarchy by;
  int root;  // the root's index

  [[nodiscard]] PLEXUS_HOST_DEVICE constexpr int place() const {
    return (by.index - root + by.size()) % by.size();
  }
  [[nodiscard]] PLEXUS_HOST_DEVICE constexpr bool is_last() const {
    return place() == by.size() - 1;
  }
  [[nodiscard]] PLEXUS_HOST_DEVICE constexpr int after_me() const {
    return DatacenterRing{by, 1}.next();
  }
  [[nodiscard]] PLEXUS_HOST_DEVICE constexpr int before_me() const {
    return DatacenterRing{by, 1}.prev();
  }
};

/// The neighbour in the chain (if any), then the chunk's owners in other datacenters. In a
/// reduction the own contribution comes first.
struct ChainAndOwners {
  int neighbour;  // -1: none
  OtherOwners owners;
  bool has_owners;
  [[nodiscard]] PLEXUS_HOST_DEVICE constexpr int size() const {
    return (neighbour >= 0 ? 1 : 0) + (has_owners ? owners.size() : 0);
  }
  PLEXUS_HOST_DEVICE constexpr int operator[](int at) const {
    if (neighbour < 0) {
      return owners[at];
    }
    return at == 0 ? neighbour : owners[at - 1];
  }
  [[nodiscard]] PLEXUS_HOST_DEVICE static constexpr int own_position() { return 0; }
};

PLEXUS_HOST_DEVICE constexpr int hierarchical_rooted_chunks(const Hierarchy& by) {
  return by.largest();
}

/// The datacenter and the index of a rank.
struct RootPlace {
  int datacenter;
  int index;
  PLEXUS_HOST_DEVICE static constexpr RootPlace of(const Hierarchy& by, int root) {
    for (int datacenter = 0; datacenter < by.datacenters; ++datacenter) {
      for (int index = 0; index < by.size(datacenter); ++index) {
        if (by.rank(datacenter, index) == root) {
          return {datacenter, index};
        }
      }
    }
    return {0, 0};
  }
};

/// Lanes: 0 the chain (or receiving from the root's datacenter), 1 to other datacenters (or round
/// the ring).
template <class Prims>
PLEXUS_HOST_DEVICE void hierarchical_broadcast(Prims& prims, const Hierarchy& by, int root) {
  const RootPlace at = RootPlace::of(by, root);
  const int chunks = hierarchical_rooted_chunks(by);
  const ChunkBlocks blocks{chunks, by.size(), 0, chunks};
  const int own = by.index;
  if (by.datacenter != at.datacenter) {
    if (blocks.size(own) > 0 && prims.lane(0)) {
      for_chunks(blocks, own, 0, chunks, [&](int chunk) {
        const int from = by.rank(at.datacenter, share_of(chunk, chunks, by.size(at.datacenter)));
        prims.recv(from, Buffer::kOutput, chunk);
      });
    }
    if (by.size() > 1 && prims.lane(1)) {
      if (blocks.size(own) > 0) {
        prims.after(0);
      }
      gather_in_datacenter(prims, DatacenterRing{by, 1}, blocks);
    }
    return;
  }
  const RootChain chain{by, at.index};
  const bool is_root = chain.place() == 0;
  if (prims.lane(0)) {
    for (int chunk = 0; chunk < chunks; ++chunk) {
      if (is_root && chain.is_last()) {
        prims.copy(Buffer::kInput, Buffer::kOutput, chunk);
      } else if (is_root) {
        prims.copy_send(Buffer::kInput, Buffer::kOutput, chunk, chain.after_me());
      } else if (chain.is_last()) {
        prims.recv(chain.before_me(), Buffer::kOutput, chunk);
      } else {
        prims.recv_copy_send(chain.before_me(), Buffer::kOutput, chunk, chain.after_me());
      }
    }
  }
  if (blocks.size(own) > 0 && prims.lane(1)) {
    prims.after(0);
    for_chunks(blocks, own, 0, chunks, [&](int chunk) {
      prims.send(Buffer::kOutput, chunk, OtherOwners{by, chunk, chunks});
    });
  }
}

/// Uses one lane.
template <class Prims>
PLEXUS_HOST_DEVICE void hierarchical_reduce(Prims& prims, const Hierarchy& by, int root) {
  const RootPlace at = RootPlace::of(by, root);
  const int chunks = hierarchical_rooted_chunks(by);
  const ChunkBlocks blocks{chunks, by.size(), 0, chunks};
  if (by.datacenter != at.datacenter) {
    const auto root_owner = [&](int chunk) {
      return by.rank(at.datacenter, share_of(chunk, chunks, by.size(at.datacenter)));
    };
    if (by.size() == 1) {
      for_chunks(blocks, 0, 0, chunks,
                 [&](int chunk) { prims.send(Buffer::kInput, chunk, root_owner(chunk)); });
      return;
    }
    const DatacenterRing ring{by, 1};
    // In small batches, in the order in which the root's datacenter takes the chunks.
    for (int low = 0; low < chunks; low += kHierarchyBatch) {
      const int high = low + kHierarchyBatch < chunks ? low + kHierarchyBatch : chunks;
      reduce_in_datacenter(prims, ring, ChunkBlocks{chunks, by.size(), low, high}, [&](int chunk) {
        prims.recv_reduce_send(ring.prev(), Buffer::kInput, chunk, root_owner(chunk));
      });
    }
    return;
  }
  const RootChain chain{by, at.index};
  for (int chunk = 0; chunk < chunks; ++chunk) {
    const bool owns = share_of(chunk, chunks, by.size()) == by.index;
    const ChainAndOwners from{chain.is_last() ? -1 : chain.after_me(),
                              OtherOwners{by, chunk, chunks}, owns};
    if (chain.place() == 0) {
      if (from.size() > 0) {
        prims.recv_reduce_copy(from, Buffer::kInput, Buffer::kOutput, chunk, Complete::kYes);
      }
    } else if (from.size() == 0) {
      prims.send(Buffer::kInput, chunk, chain.before_me());
    } else {
      prims.recv_reduce_send(from, Buffer::kInput, chunk, chain.before_me());
    }
  }
}

}  // namespace plexus
