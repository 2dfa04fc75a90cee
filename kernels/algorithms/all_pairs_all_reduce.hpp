// SPDX-License-Identifier: Apache-2.0
// One-shot all-pairs all-reduce for small messages: every rank sends its whole input to every other
// rank and reduces all inputs itself in rank order, so that all ranks get the same bits. Chunks per
// loop: 1. Steps on the critical path: 1. Chunks sent per rank: nranks-1.
#pragma once

#include "kernels/algorithms/prims.hpp"

namespace plexus {

template <class Prims>
PLEXUS_HOST_DEVICE void all_pairs_all_reduce(Prims& prims, int rank, int nranks) {
  // In place, the result overwrites the input once all other inputs have arrived, which may be
  // before a slow receiver has read this rank's input.
  prims.send(Buffer::kInput, 0, EveryoneAfter{rank, nranks}, ByAddress::kNo);
  prims.recv_reduce_copy(EveryoneElse{rank, nranks}, Buffer::kInput, Buffer::kOutput, 0,
                         Complete::kYes);
}

}  // namespace plexus
