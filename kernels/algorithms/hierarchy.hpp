// SPDX-License-Identifier: Apache-2.0
// Shared parts of the hierarchical algorithms: the ranks by datacenter, the owners of chunks
// towards other datacenters, and reduce-scatter and all-gather round the ring of one datacenter in
// which a member may have several chunks or none.
#pragma once

#include "kernels/algorithms/prims.hpp"

namespace plexus {

/// Number of one member's chunks that circulate at once: every rank needs a free slot to forward
/// one.
inline constexpr int kHierarchyBatch = 3;

/// The ranks of a communicator by datacenter. `members`: [nranks] ranks, one datacenter after the
/// other, each in ring order; `starts`: [datacenters + 1] first index of each datacenter. Both are
/// borrowed.
struct Hierarchy {
  const int* members;
  const int* starts;
  int datacenters;
  int datacenter;  // this rank's
  int index;       // index of this rank in its datacenter

  [[nodiscard]] PLEXUS_HOST_DEVICE constexpr int size(int of) const {
    return starts[of + 1] - starts[of];
  }
  [[nodiscard]] PLEXUS_HOST_DEVICE constexpr int size() const { return size(datacenter); }
  [[nodiscard]] PLEXUS_HOST_DEVICE constexpr int rank(int of, int member) const {
    return members[starts[of] + member];
  }
  [[nodiscard]] PLEXUS_HOST_DEVICE constexpr int self() const { return rank(datacenter, index); }
  [[nodiscard]] PLEXUS_HOST_DEVICE constexpr int largest() const {
    int most = 0;
    for (int of = 0; of < datacenters; ++of) {
      most = size(of) > most ? size(of) : most;
    }
    return most;
  }
  [[nodiscard]] PLEXUS_HOST_DEVICE constexpr bool has_size(int wanted) const {
    bool has = false;
    for (int of = 0; of < datacenters; ++of) {
      has = has || size(of) == wanted;
    }
    return has;
  }
};

/// Divides `count` things among `members` in order, as evenly as possible: the member that has
/// `thing`, and the first thing of a member (`first` of the next member is the end).
PLEXUS_HOST_DEVICE constexpr int share_of(int thing, int count, int members) {
  return static_cast<int>(int64_t{thing} * members / count);
}
PLEXUS_HOST_DEVICE constexpr int first_of(int member, int count, int members) {
  return static_cast<int>((int64_t{member} * count + members - 1) / members);
}

/// Chunks [low, high) of `count`: each member's share.
struct ChunkBlocks {
  int count;
  int members;
  int low;
  int high;

  [[nodiscard]] PLEXUS_HOST_DEVICE constexpr int first(int member) const {
    const int own = first_of(member, count, members);
    return own > low ? own : low;
  }
  [[nodiscard]] PLEXUS_HOST_DEVICE constexpr int size(int member) const {
    const int own = first_of(member + 1, count, members);
    const int left = (own < high ? own : high) - first(member);
    return left > 0 ? left : 0;
  }
  [[nodiscard]] PLEXUS_HOST_DEVICE constexpr int chunk(int member, int k) const {
    return first(member) + k;
  }
};

/// One block per member: its own.
struct OwnBlocks {
  Hierarchy by;
  [[nodiscard]] PLEXUS_HOST_DEVICE static constexpr int size(int /*member*/) { return 1; }
  [[nodiscard]] PLEXUS_HOST_DEVICE constexpr int chunk(int member, int /*k*/) const {
    return by.rank(by.datacenter, member);
  }
};

/// The blocks of other datacenters' ranks whose partner in this datacenter is the member.
struct PartnerBlocks {
  Hierarchy by;

  /// Index in datacenter `of` of the partner of member `member` of datacenter `from`.
  [[nodiscard]] PLEXUS_HOST_DEVICE constexpr int partner(int from, int member, int of) const {
    return by.rank(of, share_of(member, by.size(from), by.size(of)));
  }
  [[nodiscard]] PLEXUS_HOST_DEVICE constexpr int first(int member, int other) const {
    return first_of(member, by.size(other), by.size());
  }
  [[nodiscard]] PLEXUS_HOST_DEVICE constexpr int size(int member) const {
    int blocks = 0;
    for (int other = 0; other < by.datacenters; ++other) {
      blocks += other == by.datacenter ? 0 : first(member + 1, other) - first(member, other);
    }
    return blocks;
  }
  [[nodiscard]] PLEXUS_HOST_DEVICE constexpr int chunk(int member, int k) const {
    for (int other = 0; other < by.datacenters; ++other) {
      const int here = other == by.datacenter ? 0 : first(member + 1, other) - first(member, other);
      if (k < here) {
        return by.rank(other, first(member, other) + k);
      }
      k -= here;
    }
    return -1;
  }
};

/// The ring of one datacenter in either direction.
struct DatacenterRing {
  Hierarchy by;
  int direction;

  [[nodiscard]] PLEXUS_HOST_DEVICE constexpr int behind(int steps) const {
    const int size = by.size();
    return ((by.index - direction * steps) % size + size) % size;
  }
  [[nodiscard]] PLEXUS_HOST_DEVICE constexpr int next() const {
    return by.rank(by.datacenter, behind(-1));
  }
  [[nodiscard]] PLEXUS_HOST_DEVICE constexpr int prev() const {
    return by.rank(by.datacenter, behind(1));
  }
};

/// Calls `use(first, end)` for ranges that together cover the largest share.
template <class Blocks, class Use>
PLEXUS_HOST_DEVICE void for_batches(const Hierarchy& by, const Blocks& blocks, const Use& use) {
  int most = 0;
  for (int member = 0; member < by.size(); ++member) {
    most = blocks.size(member) > most ? blocks.size(member) : most;
  }
  for (int first = 0; first < most; first += kHierarchyBatch) {
    use(first, first + kHierarchyBatch);
  }
}

template <class Blocks, class Use>
PLEXUS_HOST_DEVICE void for_chunks(
    const Blocks& blocks, int member, int first, int end, const Use& use) {
  for (int k = first; k < end && k < blocks.size(member); ++k) {
    use(blocks.chunk(member, k));
  }
}

/// Reduce-scatter round the ring of the datacenter, which has at least two ranks. `finish(chunk)`
/// receives the own chunks and combines them with the input.
template <class Prims, class Blocks, class Finish>
PLEXUS_HOST_DEVICE void reduce_in_datacenter(Prims& prims,
                                             const DatacenterRing& ring,
                                             const Blocks& blocks,
                                             const Finish& finish) {
  for_batches(ring.by, blocks, [&](int first, int end) {
    for_chunks(blocks, ring.behind(1), first, end,
               [&](int chunk) { prims.send(Buffer::kInput, chunk, ring.next()); });
    for (int step = 2; step < ring.by.size(); ++step) {
      for_chunks(blocks, ring.behind(step), first, end, [&](int chunk) {
        prims.recv_reduce_send(ring.prev(), Buffer::kInput, chunk, ring.next());
      });
    }
    for_chunks(blocks, ring.by.index, first, end, finish);
  });
}

/// All-gather round the ring of the datacenter, which has at least two ranks, from and to the
/// output.
template <class Prims, class Blocks>
PLEXUS_HOST_DEVICE void gather_in_datacenter(Prims& prims,
                                             const DatacenterRing& ring,
                                             const Blocks& blocks) {
  const int size = ring.by.size();
  for_batches(ring.by, blocks, [&](int first, int end) {
    for_chunks(blocks, ring.by.index, first, end,
               [&](int chunk) { prims.send(Buffer::kOutput, chunk, ring.next()); });
    for (int step = 1; step < size - 1; ++step) {
      for_chunks(blocks, ring.behind(step), first, end, [&](int chunk) {
        prims.recv_copy_send(ring.prev(), Buffer::kOutput, chunk, ring.next());
      });
    }
    for_chunks(blocks, ring.behind(size - 1), first, end,
               [&](int chunk) { prims.recv(ring.prev(), Buffer::kOutput, chunk); });
  });
}

/// The owners of `chunk` in all other datacenters; the own contribution has its datacenter's place.
struct OtherOwners {
  Hierarchy by;
  int chunk;
  int chunks;
  [[nodiscard]] PLEXUS_HOST_DEVICE constexpr int size() const { return by.datacenters - 1; }
  PLEXUS_HOST_DEVICE constexpr int operator[](int at) const {
    const int of = at < by.datacenter ? at : at + 1;
    return by.rank(of, share_of(chunk, chunks, by.size(of)));
  }
  [[nodiscard]] PLEXUS_HOST_DEVICE constexpr int own_position() const { return by.datacenter; }
};

}  // namespace plexus
