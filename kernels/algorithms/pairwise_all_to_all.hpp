// SPDX-License-Identifier: Apache-2.0
// Pairwise all-to-all, gather and scatter: every chunk goes directly from its source to its target.
// All-to-all: sends and receives are separate lanes, shifted by rank so that no rank receives from
// all others at once. Chunks per loop: nranks (input chunk r goes to rank r, output chunk r comes
// from rank r). Steps: nranks-1. Chunks sent per rank: nranks-1.
#pragma once

#include "kernels/algorithms/prims.hpp"

namespace plexus {

template <class Prims>
PLEXUS_HOST_DEVICE void pairwise_all_to_all(Prims& prims, int rank, int nranks) {
  if (prims.lane(0)) {
    for (int step = 1; step < nranks; ++step) {
      const int to = (rank + step) % nranks;
      prims.send(Buffer::kInput, to, to);
    }
    prims.copy(Buffer::kInput, Buffer::kOutput, rank);  // overlaps with the other ranks' sends
  }
  if (prims.lane(1)) {
    for (int step = 1; step < nranks; ++step) {
      const int from = (rank - step + nranks) % nranks;
      prims.recv(from, Buffer::kOutput, from);
    }
  }
}

/// Gather: rank r's chunk goes directly to output chunk r of the root.
template <class Prims>
PLEXUS_HOST_DEVICE void direct_gather(Prims& prims, int rank, int nranks, int root) {
  if (rank != root) {
    prims.send(Buffer::kInput, rank, root);
    return;
  }
  prims.copy(Buffer::kInput, Buffer::kOutput, root);
  for (int step = 1; step < nranks; ++step) {
    const int from = (root + step) % nranks;
    prims.recv(from, Buffer::kOutput, from);
  }
}

/// Scatter: input chunk r of the root goes directly to rank r.
template <class Prims>
PLEXUS_HOST_DEVICE void direct_scatter(Prims& prims, int rank, int nranks, int root) {
  if (rank != root) {
    prims.recv(root, Buffer::kOutput, rank);
    return;
  }
  for (int step = 1; step < nranks; ++step) {
    const int to = (root + step) % nranks;
    prims.send(Buffer::kInput, to, to);
  }
  prims.copy(Buffer::kInput, Buffer::kOutput, root);
}

}  // namespace plexus
