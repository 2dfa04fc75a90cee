// SPDX-License-Identifier: Apache-2.0
// All-reduce over datacenters: reduce-scatter round the ring of every datacenter, all-reduce of
// each shard between its owners (one per datacenter), all-gather round the rings. For S bytes over
// D datacenters, 2 S (D - 1) / D bytes leave a datacenter, spread over all of its ranks; for two
// datacenters that is S, half of what a ring through both sends.
//
// Two datacenters exchange shards in one step. With more, shard c is sent to its owner in
// datacenter c mod D, which sends the sum back: 2 steps for any D.
//
// Lanes: reduce-scatter; between datacenters (for two datacenters separate lanes for sending and
// receiving, so that loops overlap on a path of high latency); all-gather, in the other direction
// round the ring. In a datacenter of two ranks both directions are the same connection: one lane
// does both, and a loop has kPairGroups times as many chunks to overlap.
#pragma once

#include "kernels/algorithms/hierarchy.hpp"

namespace plexus {

inline constexpr int kPairGroups = 4;

PLEXUS_HOST_DEVICE constexpr int hierarchical_all_reduce_chunks(const Hierarchy& by) {
  return by.largest() * (by.datacenters > 2 ? by.datacenters : 1) *
         (by.has_size(2) ? kPairGroups : 1);
}

/// Lane numbers by purpose.
struct HierarchyLanes {
  int out;     // to other datacenters
  int in;      // from them
  int gather;  // all-gather in the datacenter
};

template <class Prims>
class HierarchicalAllReduce {
 public:
  PLEXUS_HOST_DEVICE HierarchicalAllReduce(Prims& prims, const Hierarchy& by)
      : prims_(prims),
        by_(by),
        chunks_(hierarchical_all_reduce_chunks(by)),
        held_(by.size() == 1 ? Buffer::kInput : Buffer::kOutput),
        lanes_{1, by.datacenters == 2 ? 2 : 1, 0} {
    if (by.size() > 2) {
      lanes_.gather = lanes_.in + 1;
    }
  }

  PLEXUS_HOST_DEVICE void run() {
    const int step = by_.datacenters == 2 ? by_.largest() : kFewPerPair * by_.datacenters;
    for (int low = 0; low < chunks_; low += step) {
      reduce(range(low, step));
      if (by_.datacenters == 2) {
        exchange_out(range(low, step));
      }
    }
    for (int low = 0; low < chunks_; low += step) {
      if (by_.datacenters == 2) {
        exchange_in(range(low, step));
      } else {
        sum_at_homes(range(low, step));
      }
      gather(range(low, step));
    }
  }

 private:
  /// Number of chunks that one rank sends another before it receives the answers: less than half of
  /// a connection's slots.
  static constexpr int kFewPerPair = 3;

  [[nodiscard]] PLEXUS_HOST_DEVICE ChunkBlocks range(int low, int step) const {
    return {chunks_, by_.size(), low, low + step < chunks_ ? low + step : chunks_};
  }
  [[nodiscard]] PLEXUS_HOST_DEVICE int owner(int of, int chunk) const {
    return by_.rank(of, share_of(chunk, chunks_, by_.size(of)));
  }
  template <class Use>
  PLEXUS_HOST_DEVICE void for_own(const ChunkBlocks& blocks, const Use& use) const {
    for_chunks(blocks, by_.index, 0, blocks.size(by_.index), use);
  }
  PLEXUS_HOST_DEVICE void reduce(const ChunkBlocks& blocks) {
    if (by_.size() > 1 && prims_.lane(0)) {
      reduce_in_datacenter(prims_, DatacenterRing{by_, 1}, blocks, [&](int chunk) {
        prims_.recv_reduce_copy(DatacenterRing{by_, 1}.prev(), Buffer::kInput, Buffer::kOutput,
                                chunk, Complete::kNo);
      });
    }
  }

  PLEXUS_HOST_DEVICE void exchange_out(const ChunkBlocks& blocks) {
    if (blocks.size(by_.index) == 0 || !prims_.lane(lanes_.out)) {
      return;
    }
    if (by_.size() > 1) {
      prims_.after(0);
    }
    // Sent by bytes, because the sum overwrites what is sent.
    for_own(blocks, [&](int chunk) {
      prims_.send(held_, chunk, owner(1 - by_.datacenter, chunk), ByAddress::kNo);
    });
  }

  PLEXUS_HOST_DEVICE void exchange_in(const ChunkBlocks& blocks) {
    if (blocks.size(by_.index) == 0 || !prims_.lane(lanes_.in)) {
      return;
    }
    if (!sent_) {
      prims_.after(lanes_.out);  // wait for all sends recorded on that lane so far
      sent_ = true;
    }
    for_own(blocks, [&](int chunk) {
      const Partner other{owner(1 - by_.datacenter, chunk), by_.datacenter == 1};
      prims_.recv_reduce_copy(other, held_, Buffer::kOutput, chunk, Complete::kYes);
    });
  }

  PLEXUS_HOST_DEVICE void sum_at_homes(const ChunkBlocks& blocks) {
    if (blocks.size(by_.index) == 0 || !prims_.lane(lanes_.out)) {
      return;
    }
    const int datacenters = by_.datacenters;
    if (by_.size() > 1 && !reduced_) {
      prims_.after(0);
      reduced_ = true;
    }
    for_own(blocks, [&](int chunk) {
      if (chunk % datacenters != by_.datacenter) {
        prims_.send(held_, chunk, owner(chunk % datacenters, chunk));
      }
    });
    for_own(blocks, [&](int chunk) {
      if (chunk % datacenters == by_.datacenter) {
        const OtherOwners others{by_, chunk, chunks_};
        prims_.recv_reduce_copy_send(others, held_, Buffer::kOutput, chunk, others, Complete::kYes);
      }
    });
    for_own(blocks, [&](int chunk) {
      if (chunk % datacenters != by_.datacenter) {
        prims_.recv(owner(chunk % datacenters, chunk), Buffer::kOutput, chunk);
      }
    });
  }

  PLEXUS_HOST_DEVICE void gather(const ChunkBlocks& blocks) {
    if (by_.size() > 1 && prims_.lane(lanes_.gather)) {
      if (blocks.size(by_.index) > 0) {
        prims_.after(lanes_.in);
      }
      gather_in_datacenter(prims_, DatacenterRing{by_, lanes_.gather == 0 ? 1 : -1}, blocks);
    }
  }

  Prims& prims_;
  Hierarchy by_;
  int chunks_;
  Buffer held_;  // buffer that holds the datacenter's sum
  HierarchyLanes lanes_;
  bool sent_ = false;     // the lane from other datacenters has waited for the lane to them
  bool reduced_ = false;  // the lane to other datacenters has waited for the datacenter's sums
};

template <class Prims>
PLEXUS_HOST_DEVICE void hierarchical_all_reduce(Prims& prims, const Hierarchy& by) {
  HierarchicalAllReduce<Prims>(prims, by).run();
}

}  // namespace plexus
