// SPDX-License-Identifier: Apache-2.0
// Ring reduce-scatter: the partial sum of each chunk travels round the ring and ends at its owner.
// Chunks per loop: nranks (chunk r is complete at rank r). Steps: nranks-1. Chunks sent per rank:
// nranks-1.
#pragma once

#include "kernels/algorithms/prims.hpp"
#include "kernels/algorithms/ring_view.hpp"

namespace plexus {

template <class Prims>
PLEXUS_HOST_DEVICE void ring_reduce_scatter(Prims& prims, const RingView& ring) {
  const int n = ring.nranks;
  prims.send(Buffer::kInput, ring.behind(1), ring.next());
  for (int step = 2; step < n; ++step) {
    prims.recv_reduce_send(ring.prev(), Buffer::kInput, ring.behind(step), ring.next());
  }
  prims.recv_reduce_copy(ring.prev(), Buffer::kInput, Buffer::kOutput, ring.self(), Complete::kYes);
}

}  // namespace plexus
