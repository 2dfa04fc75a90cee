// SPDX-License-Identifier: Apache-2.0
// All-reduces by exchanges between pairs, for p = the largest power of two <= nranks. Each of the
// nranks - p left-over ranks gives its input to a partner first and gets the result at the end.
//
// Recursive doubling: log2(p) exchanges of the whole message. Chunks per loop: 1. Steps: log2(p),
// plus 1 or 2 with left-over ranks. Chunks sent: log2(p), plus 1 by the partner of a left-over
// rank.
//
// Recursive quadrupling (Ruefenacht et al., "Generalisation of recursive doubling for AllReduce",
// 2017): as doubling, by exchanges among four, and one between two where log2(p) is odd. Steps:
// log4(p), rounded up, plus 1 or 2 with left-over ranks. Chunks sent: 3 for each exchange among
// four, 1 for that between two, plus 1 by the partner of a left-over rank.
//
// Halving and doubling (Rabenseifner, "Optimization of collective reduction operations", 2004): a
// reduce-scatter in which each exchange halves what is left, then an all-gather in reverse order.
// Chunks per loop: p. Steps: 2 log2(p), plus 2 with left-over ranks. Chunks sent: 2(p-1), plus p by
// the partner of a left-over rank. The first exchange, of most bytes, is with the farthest place,
// or, in the second order, with the nearest one: of r ranks a host, numbered host by host, each
// then sends only 2(p/r - 1) of its chunks to other hosts.
//
// Swing (De Sensi et al., "Swing: short-cutting rings for higher bandwidth allreduce", NSDI 2024):
// halving and doubling with partners that are near on a ring or torus: 1, 1, 3, 5, 11, ... places
// away.
#pragma once

#include "kernels/algorithms/prims.hpp"
#include "kernels/algorithms/ring_view.hpp"

namespace plexus {

/// Places 0..p-1 take part in the exchanges; place p+i is left over, with place i as its partner.
struct Butterfly {
  int p;
  int steps;  // log2(p)
  int left_over;

  PLEXUS_HOST_DEVICE static constexpr Butterfly of(int nranks) {
    Butterfly fly{1, 0, 0};
    while (fly.p * 2 <= nranks) {
      fly.p *= 2;
      ++fly.steps;
    }
    fly.left_over = nranks - fly.p;
    return fly;
  }
};

/// Partners at distance p/2, p/4, ..., 1. After step s a place holds the blocks of the places that
/// share its first s+1 bits.
struct HalvingPeers {
  int p;
  PLEXUS_HOST_DEVICE constexpr int operator()(int place, int step) const {
    return place ^ (p >> (step + 1));
  }
};

/// Partners at distance 1, 2, ..., p/2. After step s a place holds the blocks of the places that
/// share its last s+1 bits.
struct NearHalvingPeers {
  int p;
  PLEXUS_HOST_DEVICE constexpr int operator()(int place, int step) const {
    return place ^ (1 << step);
  }
};

/// Partners at distance rho(s) = (1 - (-2)^(s+1)) / 3: forward from even places, backward from odd
/// ones.
struct SwingPeers {
  int p;
  PLEXUS_HOST_DEVICE constexpr int operator()(int place, int step) const {
    int power = 1;
    for (int i = 0; i <= step; ++i) {
      power *= -2;
    }
    const int rho = (1 - power) / 3;
    const int to = place % 2 == 0 ? place + rho : place - rho;
    return (to % p + p) % p;
  }
};

/// The other three of the four places that differ in two bits only.
struct OthersOfFour {
  RingView ring;
  int place;
  int bit;  // the lower one

  [[nodiscard]] PLEXUS_HOST_DEVICE static constexpr int size() { return 3; }
  PLEXUS_HOST_DEVICE int operator[](int index) const {
    const int other = index < own_position() ? index : index + 1;
    return ring.at((place & ~(3 << bit)) | other << bit);
  }
  [[nodiscard]] PLEXUS_HOST_DEVICE int own_position() const { return place >> bit & 3; }
};

/// Calls `exchange(held, fly)` of the places that take part: all combine their messages, which lie
/// in `held`, in the output.
template <class Prims, class Exchange>
PLEXUS_HOST_DEVICE void whole_message_all_reduce(Prims& prims,
                                                 const RingView& ring,
                                                 const Exchange& exchange) {
  const Butterfly fly = Butterfly::of(ring.nranks);
  const int place = ring.position;
  if (place >= fly.p) {
    const int partner = ring.at(place - fly.p);
    prims.send(Buffer::kInput, 0, partner);
    prims.recv(partner, Buffer::kOutput, 0);
    return;
  }
  Buffer held = Buffer::kInput;
  if (place < fly.left_over) {
    prims.recv_reduce_copy(ring.at(place + fly.p), held, Buffer::kOutput, 0, Complete::kNo);
    held = Buffer::kOutput;
  }
  exchange(held, fly);
  if (place < fly.left_over) {
    prims.send(Buffer::kOutput, 0, ring.at(place + fly.p));
  }
}

/// An exchange of whole messages with the peers `to`. They are sent by bytes, because the next verb
/// overwrites what is sent.
template <class Prims, class To, class From>
PLEXUS_HOST_DEVICE void exchange_message(
    Prims& prims, const To& to, const From& from, Buffer held, bool is_last) {
  prims.send(held, 0, to, ByAddress::kNo);
  prims.recv_reduce_copy(from, held, Buffer::kOutput, 0, is_last ? Complete::kYes : Complete::kNo);
}

template <class Prims>
PLEXUS_HOST_DEVICE void recursive_doubling_all_reduce(Prims& prims, const RingView& ring) {
  whole_message_all_reduce(prims, ring, [&](Buffer held, const Butterfly& fly) {
    for (int step = 0; step < fly.steps; ++step) {
      const int other = ring.position ^ (1 << step);
      exchange_message(prims, OnePeer(ring.at(other)),
                       Partner{ring.at(other), other < ring.position},
                       step == 0 ? held : Buffer::kOutput, step + 1 == fly.steps);
    }
  });
}

template <class Prims>
PLEXUS_HOST_DEVICE void recursive_quadrupling_all_reduce(Prims& prims, const RingView& ring) {
  whole_message_all_reduce(prims, ring, [&](Buffer held, const Butterfly& fly) {
    int bit = 0;
    if (fly.steps % 2 == 1) {
      const int other = ring.position ^ 1;
      exchange_message(prims, OnePeer(ring.at(other)),
                       Partner{ring.at(other), other < ring.position}, held, fly.steps == 1);
      bit = 1;
    }
    for (; bit < fly.steps; bit += 2) {
      const OthersOfFour others{ring, ring.position, bit};
      exchange_message(prims, others, others, bit == 0 ? held : Buffer::kOutput,
                       bit + 2 == fly.steps);
    }
  });
}

/// Calls `use(block)` for the blocks that reach `place` in exchanges `step` and later, in the same
/// order on both sides of an exchange.
template <class Peers, class Use>
PLEXUS_HOST_DEVICE void for_each_block(
    const Peers& peers, int steps, int place, int step, const Use& use) {
  if (step == steps) {
    use(place);
    return;
  }
  for_each_block(peers, steps, place, step + 1, use);
  for_each_block(peers, steps, peers(place, step), step + 1, use);
}

/// Those with the first `step` bits of `place`: one behind the other, so that they move as one.
template <class Use>
PLEXUS_HOST_DEVICE void for_each_block(
    const HalvingPeers& /*peers*/, int steps, int place, int step, const Use& use) {
  const int count = 1 << (steps - step);
  for (int block = place & ~(count - 1), end = block + count; block < end; ++block) {
    use(block);
  }
}

/// Blocks are numbered by the bits of their place in reverse, for the same reason.
template <class Use>
PLEXUS_HOST_DEVICE void for_each_block(
    const NearHalvingPeers& peers, int steps, int place, int step, const Use& use) {
  int reversed = 0;
  for (int bit = 0; bit < steps; ++bit) {
    reversed |= (place >> bit & 1) << (steps - 1 - bit);
  }
  for_each_block(HalvingPeers{peers.p}, steps, reversed, step, use);
}

/// Lane 0 sends and lane 1 receives; the sends of a step wait for the receives of the previous
/// step.
template <class Prims, class Peers>
PLEXUS_HOST_DEVICE void exchange_all_reduce(Prims& prims,
                                            const RingView& ring,
                                            const Peers& peers) {
  const Butterfly fly = Butterfly::of(ring.nranks);
  const int place = ring.position;
  const bool has_left_over = place < fly.left_over;
  const Buffer first = has_left_over ? Buffer::kOutput : Buffer::kInput;
  const auto for_blocks = [&](int of, int step, const auto& use) {
    prims.message([&] { for_each_block(peers, fly.steps, of, step, use); });
  };
  if (prims.lane(1) && has_left_over) {
    message_of(prims, fly.p, [&](int block) {
      prims.recv_reduce_copy(ring.at(place + fly.p), Buffer::kInput, Buffer::kOutput, block,
                             Complete::kNo);
    });
  }
  for (int step = 0; step < fly.steps; ++step) {
    const int other = peers(place, step);
    const Buffer held = step == 0 ? first : Buffer::kOutput;
    if (prims.lane(0)) {
      if (step > 0 || has_left_over) {
        prims.after(1);
      }
      for_blocks(other, step + 1, [&](int block) { prims.send(held, block, ring.at(other)); });
    }
    if (prims.lane(1)) {
      const Complete complete = step + 1 == fly.steps ? Complete::kYes : Complete::kNo;
      for_blocks(place, step + 1, [&](int block) {
        prims.recv_reduce_copy(ring.at(other), held, Buffer::kOutput, block, complete);
      });
    }
  }
  for (int step = fly.steps - 1; step >= 0; --step) {
    const int other = peers(place, step);
    if (prims.lane(0)) {
      prims.after(1);
      for_blocks(place, step + 1,
                 [&](int block) { prims.send(Buffer::kOutput, block, ring.at(other)); });
    }
    if (prims.lane(1)) {
      for_blocks(other, step + 1,
                 [&](int block) { prims.recv(ring.at(other), Buffer::kOutput, block); });
    }
  }
  if (prims.lane(0) && has_left_over) {
    prims.after(1);
    message_of(prims, fly.p,
               [&](int block) { prims.send(Buffer::kOutput, block, ring.at(place + fly.p)); });
  }
}

/// The program of a left-over rank.
template <class Prims>
PLEXUS_HOST_DEVICE void left_over_all_reduce(Prims& prims, const RingView& ring) {
  const Butterfly fly = Butterfly::of(ring.nranks);
  const int partner = ring.at(ring.position - fly.p);
  if (prims.lane(0)) {
    message_of(prims, fly.p, [&](int block) { prims.send(Buffer::kInput, block, partner); });
  }
  if (prims.lane(1)) {
    message_of(prims, fly.p, [&](int block) { prims.recv(partner, Buffer::kOutput, block); });
  }
}

template <class Peers, class Prims>
PLEXUS_HOST_DEVICE void butterfly_all_reduce(Prims& prims, const RingView& ring) {
  const Butterfly fly = Butterfly::of(ring.nranks);
  if (ring.position >= fly.p) {
    left_over_all_reduce(prims, ring);
  } else {
    exchange_all_reduce(prims, ring, Peers{fly.p});
  }
}

}  // namespace plexus
