// SPDX-License-Identifier: Apache-2.0
// Two-shot all-pairs all-reduce: every rank reduces one chunk of all ranks' inputs in rank order
// and sends the result to all others. It moves the bytes of a ring in two steps, for messages that
// are too large for one shot, and few ranks. Chunks per loop: nranks. Steps: 2. Chunks sent per
// rank: 2(nranks-1).
#pragma once

#include "kernels/algorithms/prims.hpp"

namespace plexus {

template <class Prims>
PLEXUS_HOST_DEVICE void two_shot_all_reduce(Prims& prims, int rank, int nranks) {
  for (int step = 1; step < nranks; ++step) {
    const int to = (rank + step) % nranks;  // spreads the load over the receivers
    prims.send(Buffer::kInput, to, to);
  }
  prims.recv_reduce_copy_send(EveryoneElse{rank, nranks}, Buffer::kInput, Buffer::kOutput, rank,
                              EveryoneAfter{rank, nranks}, Complete::kYes);
  for (int step = 1; step < nranks; ++step) {
    const int from = (rank - step + nranks) % nranks;
    prims.recv(from, Buffer::kOutput, from);
  }
}

}  // namespace plexus
