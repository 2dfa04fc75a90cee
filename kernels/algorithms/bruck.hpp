// SPDX-License-Identifier: Apache-2.0
// Bruck all-gather and all-to-all (Bruck et al., "Efficient algorithms for all-to-all
// communications in multiport message-passing systems", 1997): blocks travel round the ring by
// powers of two, so that any number of ranks needs ceil(log2(nranks)) steps. Places are ring
// positions.
//
// All-gather: at distance d a rank holds the blocks of d places, and gets those of the next d.
//   Chunks sent per rank: nranks-1. Steps: ceil(log2(nranks)), one fewer when the last
//   step passes on nothing that the one before brought.
// All-to-all: the block for the rank o places on moves by the set bits of o, and waits in scratch
//   memory between. For small messages: nranks log2(nranks) / 2 chunks are sent, to log2(nranks)
//   peers. Steps: blocks of one distance go kBatch at a time, or all in one message.
#pragma once

#include "kernels/algorithms/prims.hpp"
#include "kernels/algorithms/ring_view.hpp"

namespace plexus {

/// Number of chunks that a lane may send to one peer before it receives: less than the slots of a
/// connection.
inline constexpr int kBatch = 4;

/// The first of `blocks` sends by `distance` that has to wait for the previous step: that of a
/// block which it brought, or of its message. `blocks`: none does.
PLEXUS_HOST_DEVICE constexpr int first_to_wait(int distance, int blocks, bool joins) {
  const bool forwards = distance > 1 && 2 * blocks > distance;
  const int first = joins ? 0 : distance / 2;
  return forwards ? first : blocks;
}

template <class Prims>
PLEXUS_HOST_DEVICE void bruck_all_gather(Prims& prims, const RingView& ring) {
  const int n = ring.nranks;
  if (prims.lane(0)) {
    prims.copy(Buffer::kInput, Buffer::kOutput, ring.self());
  }
  for (int distance = 1; distance < n; distance *= 2) {
    const int blocks = distance < n - distance ? distance : n - distance;
    if (prims.lane(0)) {
      const int to = ring.at(ring.position - distance);
      const int waits = first_to_wait(distance, blocks, prims.joins());
      message_of(prims, blocks, [&](int i) {
        if (i == waits) {
          prims.after(1);
        }
        prims.send(Buffer::kOutput, ring.at(ring.position + i), to);
      });
    }
    if (prims.lane(1)) {
      const int from = ring.at(ring.position + distance);
      message_of(prims, blocks, [&](int i) {
        prims.recv(from, Buffer::kOutput, ring.at((ring.position + distance + i) % n));
      });
    }
  }
}

/// Calls `one(k)`, which sends, for kBatch numbers k below `count`, then `two(k)`, which receives,
/// for the same ones, and so on. Where messages have several chunks: for all numbers, in a message
/// each.
template <class Prims, class One, class Two>
PLEXUS_HOST_DEVICE void in_batches(Prims& prims, int count, const One& one, const Two& two) {
  const int batch = prims.joins() ? count : kBatch;
  for (int done = 0; done < count; done += batch) {
    const int end = done + batch < count ? done + batch : count;
    message_of(prims, end - done, [&](int i) { one(done + i); });
    message_of(prims, end - done, [&](int i) { two(done + i); });
  }
}

/// The `index`-th number that has `bit` set; for bit 4: 4 5 6 7 12 13 ...
PLEXUS_HOST_DEVICE constexpr int with_bit(int index, int bit) {
  return (index / bit) * 2 * bit + bit + index % bit;
}

/// Count of the numbers below `end` that have `bit` set.
PLEXUS_HOST_DEVICE constexpr int count_with_bit(int end, int bit) {
  const int rest = end % (2 * bit) - bit;
  return end / (2 * bit) * bit + (rest > 0 ? rest : 0);
}

template <class Prims>
PLEXUS_HOST_DEVICE void bruck_all_to_all(Prims& prims, const RingView& ring) {
  const int n = ring.nranks;
  prims.copy(Buffer::kInput, Buffer::kOutput, ring.self());
  for (int bit = 1; bit < n; bit *= 2) {
    const int to = ring.at(ring.position + bit);
    const int from = ring.at(ring.position - bit);
    in_batches(
        prims, count_with_bit(n, bit),
        [&](int index) {
          const int offset = with_bit(index, bit);
          const bool moved = offset % bit != 0;
          prims.send(moved ? At{Buffer::kScratch, offset}
                           : At{Buffer::kInput, ring.at((ring.position + offset) % n)},
                     to, moved ? ByAddress::kNo : ByAddress::kYes);
        },
        [&](int index) {
          const int offset = with_bit(index, bit);
          const bool arrived = offset < 2 * bit;
          prims.recv(from, arrived ? At{Buffer::kOutput, ring.at(ring.position - offset)}
                                   : At{Buffer::kScratch, offset});
        });
  }
}

}  // namespace plexus
