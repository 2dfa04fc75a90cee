// SPDX-License-Identifier: Apache-2.0
// Bidirectional ring all-gather: every block travels both ways round the ring, to half of the ranks
// each way. It moves as many bytes as the ring in half the rounds, with the two neighbours as only
// peers; where connections are expensive, it beats the logarithmic algorithms, which have more
// peers.
//
// Chunks per loop: nranks. Steps on the critical path: nranks/2. Chunks sent per rank: nranks-1.
// Source: the all-gather half of the bidirectional ring of Jain and Sabharwal, "Optimal bucket
// algorithms for large MPI collectives on torus interconnects" (2010), in one dimension.
#pragma once

#include "kernels/algorithms/prims.hpp"
#include "kernels/algorithms/ring_view.hpp"

namespace plexus {

/// Receives the blocks of `hops` ranks from `ring.prev()`, nearest first, and forwards all but the
/// last; the own block was sent before.
template <class Prims>
PLEXUS_HOST_DEVICE void pass_on(Prims& prims, const RingView& ring, int hops) {
  for (int hop = 1; hop < hops; ++hop) {
    prims.recv_copy_send(ring.prev(), Buffer::kOutput, ring.behind(hop), ring.next());
  }
  prims.recv(ring.prev(), Buffer::kOutput, ring.behind(hops));
}

template <class Prims>
PLEXUS_HOST_DEVICE void bidirectional_ring_all_gather(Prims& prims, const RingView& ring) {
  const int forward = ring.nranks / 2;
  const int backward = (ring.nranks - 1) / 2;
  const RingView other_way = {ring.order, ring.nranks, ring.position, -ring.direction};
  if (prims.lane(0)) {
    prims.copy_send(Buffer::kInput, Buffer::kOutput, ring.self(), ring.next());
  }
  // In place, the input is the block that lane 0 stores, so lane 1 sends it from the output.
  if (backward > 0 && prims.lane(1)) {
    prims.after(0);
    prims.send(Buffer::kOutput, ring.self(), other_way.next());
    pass_on(prims, other_way, backward);
  }
  if (prims.lane(0)) {
    pass_on(prims, ring, forward);
  }
}

}  // namespace plexus
