// SPDX-License-Identifier: Apache-2.0
// One-shot collectives for small messages and few ranks: every chunk goes directly from its source
// to its target, and reductions combine in rank order. Steps on the critical path: 1. Chunks moved:
// nranks-1 by each rank (all-gather, reduce-scatter) or by the root (broadcast, reduce).
#pragma once

#include "kernels/algorithms/prims.hpp"

namespace plexus {

template <class Prims>
PLEXUS_HOST_DEVICE void all_pairs_all_gather(Prims& prims, int rank, int nranks) {
  if (prims.lane(0)) {
    prims.copy_send(Buffer::kInput, Buffer::kOutput, rank, EveryoneAfter{rank, nranks});
  }
  if (prims.lane(1)) {
    for (int step = 1; step < nranks; ++step) {
      const int from = (rank - step + nranks) % nranks;
      prims.recv(from, Buffer::kOutput, from);
    }
  }
}

template <class Prims>
PLEXUS_HOST_DEVICE void all_pairs_reduce_scatter(Prims& prims, int rank, int nranks) {
  if (prims.lane(0)) {
    for (int step = 1; step < nranks; ++step) {
      const int to = (rank + step) % nranks;  // spreads the load over the receivers
      prims.send(Buffer::kInput, to, to);
    }
  }
  if (prims.lane(1)) {
    prims.recv_reduce_copy(EveryoneElse{rank, nranks}, Buffer::kInput, Buffer::kOutput, rank,
                           Complete::kYes);
  }
}

template <class Prims>
PLEXUS_HOST_DEVICE void direct_broadcast(Prims& prims, int rank, int nranks, int root) {
  if (rank == root) {
    prims.copy_send(Buffer::kInput, Buffer::kOutput, 0, EveryoneAfter{root, nranks});
  } else {
    prims.recv(root, Buffer::kOutput, 0);
  }
}

template <class Prims>
PLEXUS_HOST_DEVICE void direct_reduce(Prims& prims, int rank, int nranks, int root) {
  if (rank == root) {
    prims.recv_reduce_copy(EveryoneElse{root, nranks}, Buffer::kInput, Buffer::kOutput, 0,
                           Complete::kYes);
  } else {
    prims.send(Buffer::kInput, 0, root);
  }
}

}  // namespace plexus
