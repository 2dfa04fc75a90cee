// SPDX-License-Identifier: Apache-2.0
// Ring all-gather: every rank's chunk travels once round the ring.
// Chunks per loop: nranks (chunk r: rank r's contribution). Steps: nranks-1. Chunks sent per rank:
// nranks-1.
#pragma once

#include "kernels/algorithms/prims.hpp"
#include "kernels/algorithms/ring_view.hpp"

namespace plexus {

template <class Prims>
PLEXUS_HOST_DEVICE void ring_all_gather(Prims& prims, const RingView& ring) {
  const int n = ring.nranks;
  prims.copy_send(Buffer::kInput, Buffer::kOutput, ring.self(), ring.next());
  for (int step = 1; step < n - 1; ++step) {
    prims.recv_copy_send(ring.prev(), Buffer::kOutput, ring.behind(step), ring.next());
  }
  prims.recv(ring.prev(), Buffer::kOutput, ring.behind(n - 1));
}

}  // namespace plexus
