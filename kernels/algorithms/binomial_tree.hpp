// SPDX-License-Identifier: Apache-2.0
// Binomial trees with any root: place v (counted from the root) has the parent v - lowbit(v) and
// the children v + 1, v + 2, v + 4, ... below lowbit(v). Logarithmic broadcast, reduce, gather and
// scatter for any number of ranks. Steps: the largest number of bits set in a place < nranks.
// Chunks moved by the root: one to or from each child (broadcast, reduce), or nranks-1 (gather,
// scatter), which may travel as one message of each subtree.
#pragma once

#include "kernels/algorithms/prims.hpp"
#include "kernels/algorithms/ring_view.hpp"

namespace plexus {

/// One rank's place in the tree. As a peer list it contains the children, nearest first.
struct BinomialPlace {
  RingView ring;
  int root_position;
  int v;

  PLEXUS_HOST_DEVICE static BinomialPlace of(const RingView& ring, int root) {
    const int v = ring.places_after(root);
    return {ring, (ring.position - v + ring.nranks) % ring.nranks, v};
  }
  [[nodiscard]] PLEXUS_HOST_DEVICE int rank_at(int place) const {
    return ring.at(root_position + place);
  }
  /// Upper bound of the distance from `place` to its children; for the root, nranks.
  [[nodiscard]] PLEXUS_HOST_DEVICE int reach(int place) const {
    return place == 0 ? ring.nranks : place & -place;
  }
  [[nodiscard]] PLEXUS_HOST_DEVICE int parent() const { return rank_at(v - reach(v)); }

  [[nodiscard]] PLEXUS_HOST_DEVICE int size() const {
    int count = 0;
    for (int step = 1; step < reach(v) && v + step < ring.nranks; step *= 2) {
      ++count;
    }
    return count;
  }
  PLEXUS_HOST_DEVICE int operator[](int index) const { return rank_at(v + (1 << index)); }
  [[nodiscard]] PLEXUS_HOST_DEVICE static constexpr int own_position() { return 0; }
};

/// The children as a peer list, the one with the largest subtree first.
struct FarthestFirst {
  BinomialPlace place;

  [[nodiscard]] PLEXUS_HOST_DEVICE int size() const { return place.size(); }
  PLEXUS_HOST_DEVICE int operator[](int index) const { return place[place.size() - 1 - index]; }
  [[nodiscard]] PLEXUS_HOST_DEVICE static constexpr int own_position() { return 0; }
};

template <class Prims>
PLEXUS_HOST_DEVICE void binomial_broadcast(Prims& prims, const RingView& ring, int root) {
  const BinomialPlace place = BinomialPlace::of(ring, root);
  if (place.v == 0) {
    prims.copy_send(Buffer::kInput, Buffer::kOutput, 0, FarthestFirst{place});
  } else if (place.size() > 0) {
    prims.recv_copy_send(place.parent(), Buffer::kOutput, 0, FarthestFirst{place});
  } else {
    prims.recv(place.parent(), Buffer::kOutput, 0);
  }
}

template <class Prims>
PLEXUS_HOST_DEVICE void binomial_reduce(Prims& prims, const RingView& ring, int root) {
  const BinomialPlace place = BinomialPlace::of(ring, root);
  if (place.v == 0) {
    prims.recv_reduce_copy(place, Buffer::kInput, Buffer::kOutput, 0, Complete::kYes);
  } else if (place.size() > 0) {
    prims.recv_reduce_send(place, Buffer::kInput, 0, place.parent());
  } else {
    prims.send(Buffer::kInput, 0, place.parent());
  }
}

/// Calls `use(place)` for `top` and its subtree: parents before children, near children before far
/// ones.
template <class Use>
PLEXUS_HOST_DEVICE void for_each_below(const BinomialPlace& tree, int top, const Use& use) {
  use(top);
  for (int step = 1; step < tree.reach(top) && top + step < tree.ring.nranks; step *= 2) {
    for_each_below(tree, top + step, use);
  }
}

/// The most places in the subtree of a child of the root.
PLEXUS_HOST_DEVICE constexpr int largest_subtree(int nranks) {
  int half = 1;
  while (2 * half < nranks) {
    half *= 2;
  }
  return half / 2 > nranks - half ? half / 2 : nranks - half;
}

/// Where a place keeps the block of one below it that it passes on.
PLEXUS_HOST_DEVICE constexpr At kept(const BinomialPlace& place, int below) {
  return {Buffer::kScratch, below - place.v - 1};
}

/// Forwards the blocks of a subtree without storing them; where messages have several chunks, waits
/// for all of them and sends one.
template <class Prims>
PLEXUS_HOST_DEVICE void binomial_gather(Prims& prims, const RingView& ring, int root) {
  const BinomialPlace place = BinomialPlace::of(ring, root);
  if (place.v == 0) {
    prims.copy(Buffer::kInput, Buffer::kOutput, root);
  } else if (!prims.joins()) {
    prims.send(Buffer::kInput, ring.self(), place.parent());
  }
  for (int child = 0; child < place.size(); ++child) {
    prims.message([&] {
      for_each_below(place, place.v + (1 << child), [&](int below) {
        if (place.v == 0) {
          prims.recv(place[child], Buffer::kOutput, place.rank_at(below));
        } else if (prims.joins()) {
          prims.recv(place[child], kept(place, below));
        } else {
          prims.recv_send(place[child], place.parent());
        }
      });
    });
  }
  if (place.v != 0 && prims.joins()) {
    prims.message([&] {
      for_each_below(place, place.v, [&](int below) {
        if (below == place.v) {
          prims.send(Buffer::kInput, ring.self(), place.parent());
        } else {
          prims.send(kept(place, below), place.parent(), ByAddress::kNo);
        }
      });
    });
  }
}

/// As binomial_gather, the other way. A message of several chunks goes to the largest subtree
/// first.
template <class Prims>
PLEXUS_HOST_DEVICE void binomial_scatter(Prims& prims, const RingView& ring, int root) {
  const BinomialPlace place = BinomialPlace::of(ring, root);
  if (place.v == 0) {
    prims.copy(Buffer::kInput, Buffer::kOutput, root);
  } else {
    prims.message([&] {
      prims.recv(place.parent(), Buffer::kOutput, ring.self());
      for (int child = 0; prims.joins() && child < place.size(); ++child) {
        for_each_below(place, place.v + (1 << child),
                       [&](int below) { prims.recv(place.parent(), kept(place, below)); });
      }
    });
  }
  for (int i = 0; i < place.size(); ++i) {
    const int child = prims.joins() ? place.size() - 1 - i : i;
    prims.message([&] {
      for_each_below(place, place.v + (1 << child), [&](int below) {
        if (place.v == 0) {
          prims.send(Buffer::kInput, place.rank_at(below), place[child]);
        } else if (prims.joins()) {
          prims.send(kept(place, below), place[child], ByAddress::kNo);
        } else {
          prims.recv_send(place.parent(), place[child]);
        }
      });
    });
  }
}

}  // namespace plexus
