// SPDX-License-Identifier: Apache-2.0
// Ring all-reduce (Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of
// workstations", 2009): a reduce-scatter round the ring, then an all-gather round the ring.
// Chunks per loop: nranks. Steps: 2(nranks-1). Chunks sent per rank: 2(nranks-1).
//
// Bidirectional: half of the chunks go round in each direction, as two lanes, so that both
// directions of every link carry data. Chunks per loop: 2 nranks, half as long. Same steps.
#pragma once

#include "kernels/algorithms/prims.hpp"
#include "kernels/algorithms/ring_view.hpp"

namespace plexus {

template <class Prims>
PLEXUS_HOST_DEVICE void ring_all_reduce(Prims& prims, const RingView& ring, int first_chunk = 0) {
  const int n = ring.nranks;
  const int next = ring.next();
  const int prev = ring.prev();
  prims.send(Buffer::kInput, first_chunk + ring.behind(1),
             next);  // the chunk of the previous rank has been everywhere
  for (int step = 2; step < n; ++step) {
    prims.recv_reduce_send(prev, Buffer::kInput, first_chunk + ring.behind(step), next);
  }
  prims.recv_reduce_copy_send(prev, Buffer::kInput, Buffer::kOutput, first_chunk + ring.self(),
                              next, Complete::kYes);
  for (int step = 1; step < n - 1; ++step) {
    prims.recv_copy_send(prev, Buffer::kOutput, first_chunk + ring.behind(step), next);
  }
  prims.recv(prev, Buffer::kOutput, first_chunk + ring.behind(n - 1));
}

template <class Prims>
PLEXUS_HOST_DEVICE void bidirectional_ring_all_reduce(Prims& prims, const RingView& ring) {
  if (prims.lane(0)) {
    ring_all_reduce(prims, ring);
  }
  // With two ranks both sides have the same peer, and a connection belongs to one lane.
  if (prims.lane(ring.nranks > 2 ? 1 : 0)) {
    const RingView reversed = {ring.order, ring.nranks, ring.position, -ring.direction};
    ring_all_reduce(prims, reversed, ring.nranks);
  }
}

}  // namespace plexus
