// SPDX-License-Identifier: Apache-2.0
// Ring all-reduce (Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of
// workstations", 2009): a reduce-scatter round the ring, then an all-gather round it.
// Chunks per loop: nranks. Steps: 2(nranks-1). Chunks sent per rank: 2(nranks-1).
#pragma once

#include "kernels/algorithms/prims.hpp"
#include "kernels/algorithms/ring_view.hpp"

namespace plexus {

template <class Prims>
PLEXUS_HOST_DEVICE void ring_all_reduce(Prims& prims, const RingView& ring) {
  const int n = ring.nranks;
  const int next = ring.next();
  const int prev = ring.prev();
  prims.send(Buffer::kInput, ring.behind(1), next);  // my predecessor's chunk ends its way there
  for (int step = 2; step < n; ++step) {
    prims.recv_reduce_send(prev, Buffer::kInput, ring.behind(step), next);
  }
  prims.recv_reduce_copy_send(prev, Buffer::kInput, Buffer::kOutput, ring.self(), next,
                              Complete::kYes);
  for (int step = 1; step < n - 1; ++step) {
    prims.recv_copy_send(prev, Buffer::kOutput, ring.behind(step), next);
  }
  prims.recv(prev, Buffer::kOutput, ring.behind(n - 1));
}

}  // namespace plexus
