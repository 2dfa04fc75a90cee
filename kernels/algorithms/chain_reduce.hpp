// SPDX-License-Identifier: Apache-2.0
// Chain reduce along the ring, ending at the root; pipelined over loops.
// Chunks per loop: 1. Steps on the critical path: nranks-1. Chunks sent per rank: 1 (0 at the
// root).
#pragma once

#include "kernels/algorithms/prims.hpp"
#include "kernels/algorithms/ring_view.hpp"

namespace plexus {

template <class Prims>
PLEXUS_HOST_DEVICE void chain_reduce(Prims& prims, const RingView& ring, int root) {
  const int place = ring.places_after(root);
  if (place == 1) {
    prims.send(Buffer::kInput, 0, ring.next());
  } else if (place > 1) {
    prims.recv_reduce_send(ring.prev(), Buffer::kInput, 0, ring.next());
  } else {
    prims.recv_reduce_copy(ring.prev(), Buffer::kInput, Buffer::kOutput, 0, Complete::kYes);
  }
}

}  // namespace plexus
