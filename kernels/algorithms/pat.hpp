// SPDX-License-Identifier: Apache-2.0
// PAT, parallel aggregated trees (Jeaugey, "PAT: a new algorithm for all-gather and reduce-scatter
// operations at scale", 2025): every block has its own binomial tree, all trees advance together,
// and blocks that move the same distance travel together. Any number of ranks. Places are ring
// positions; role s of a block is the rank s places after the block's own place.
//
// All-gather: far distances first, when there is least to send. Steps: 1, plus 1 for every distance
// at which a block of another rank is forwarded. Chunks sent: nranks-1.
//
// Reduce-scatter: the reverse, near distances first. Partial sums wait in scratch memory of half as
// many chunks as ranks. Chunks sent: nranks-1. Steps: blocks of one distance move kBatch at a time,
// or all in one message.
#pragma once

#include "kernels/algorithms/bruck.hpp"
#include "kernels/algorithms/prims.hpp"
#include "kernels/algorithms/ring_view.hpp"

namespace plexus {

/// The largest power of two below `nranks`.
PLEXUS_HOST_DEVICE constexpr int largest_distance(int nranks) {
  int distance = 1;
  while (distance * 2 < nranks) {
    distance *= 2;
  }
  return distance;
}

/// Number of blocks that move by `distance`: roles s = 0, 2d, 4d, ... with s + d < nranks.
PLEXUS_HOST_DEVICE constexpr int count_at_distance(int nranks, int distance) {
  return (nranks - distance - 1) / (2 * distance) + 1;
}

template <class Prims>
PLEXUS_HOST_DEVICE void pat_all_gather(Prims& prims, const RingView& ring) {
  const int n = ring.nranks;
  if (prims.lane(0)) {
    prims.copy(Buffer::kInput, Buffer::kOutput, ring.self());
  }
  for (int distance = largest_distance(n); distance > 0; distance /= 2) {
    const int blocks = count_at_distance(n, distance);
    if (prims.lane(0)) {
      const int to = ring.at(ring.position + distance);
      // The own block is there; those of others, and a message with them, wait.
      const int waits = prims.joins() && blocks > 1 ? 0 : 1;
      message_of(prims, blocks, [&](int i) {
        if (i == waits) {
          prims.after(1);
        }
        prims.send(Buffer::kOutput, ring.at(ring.position - 2 * distance * i), to);
      });
    }
    if (prims.lane(1)) {
      message_of(prims, blocks, [&](int i) {
        prims.recv(ring.at(ring.position - distance), Buffer::kOutput,
                   ring.at(ring.position - 2 * distance * i - distance));
      });
    }
  }
}

template <class Prims>
PLEXUS_HOST_DEVICE void pat_reduce_scatter(Prims& prims, const RingView& ring) {
  const int n = ring.nranks;
  // Location of the partial sum of role s, once there is one; the own block's is in the output.
  const auto sum_of = [&](int role) {
    return role == 0 ? At{Buffer::kOutput, ring.self()}
                     : At{Buffer::kScratch, role / 2 - 1, ring.at(ring.position - role)};
  };
  const auto input_of = [&](int role) { return At{Buffer::kInput, ring.at(ring.position - role)}; };
  for (int distance = 1; distance < n; distance *= 2) {
    const bool last = distance * 2 >= n;
    in_batches(
        prims, count_at_distance(n, distance),
        [&](int i) {  // role s + distance sends its sum
          const int role = 2 * distance * i + distance;
          const bool has_sum = distance > 1 && role + 1 < n;
          prims.send(has_sum ? sum_of(role) : input_of(role), ring.at(ring.position - distance),
                     has_sum ? ByAddress::kNo : ByAddress::kYes);
        },
        [&](int i) {  // role s adds the sum that arrives
          const int role = 2 * distance * i;
          prims.recv_reduce_copy(ring.at(ring.position + distance),
                                 distance == 1 ? input_of(role) : sum_of(role), sum_of(role),
                                 last && role == 0 ? Complete::kYes : Complete::kNo);
        });
  }
}

}  // namespace plexus
