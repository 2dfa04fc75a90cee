// SPDX-License-Identifier: Apache-2.0
// Chain broadcast along the ring, starting at the root; pipelined over loops.
// Chunks per loop: 1. Steps on the critical path: nranks-1. Chunks sent per rank: 1 (0 at the end).
#pragma once

#include "kernels/algorithms/prims.hpp"
#include "kernels/algorithms/ring_view.hpp"

namespace plexus {

template <class Prims>
PLEXUS_HOST_DEVICE void chain_broadcast(Prims& prims, const RingView& ring, int root) {
  const int place = ring.places_after(root);
  if (place == 0) {
    prims.copy_send(Buffer::kInput, Buffer::kOutput, 0, ring.next());
  } else if (place < ring.nranks - 1) {
    prims.recv_copy_send(ring.prev(), Buffer::kOutput, 0, ring.next());
  } else {
    prims.recv(ring.prev(), Buffer::kOutput, 0);
  }
}

}  // namespace plexus
