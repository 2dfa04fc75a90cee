// SPDX-License-Identifier: Apache-2.0
// Double binary tree all-reduce: up a binary tree to its root, and down again, as two lanes that
// overlap over loops. Odd channels run the second tree (binary_tree.hpp), so that with two channels
// every rank sends about as much as it receives.
// Chunks per loop: 1. Steps: 2 x depth, depth <= log2(nranks) + 1. Chunks sent: 3 by an interior
// rank (one up, two down), 1 by a leaf.
#pragma once

#include "kernels/algorithms/binary_tree.hpp"
#include "kernels/algorithms/prims.hpp"
#include "kernels/algorithms/ring_view.hpp"

namespace plexus {

/// The ranks of a place's children; the own contribution comes first.
struct TreeChildren {
  int ranks[2] = {-1, -1};
  int count = 0;
  [[nodiscard]] PLEXUS_HOST_DEVICE constexpr int size() const { return count; }
  PLEXUS_HOST_DEVICE constexpr int operator[](int index) const { return ranks[index]; }
  [[nodiscard]] PLEXUS_HOST_DEVICE static constexpr int own_position() { return 0; }
};

template <class Prims>
PLEXUS_HOST_DEVICE void tree_all_reduce(Prims& prims, const RingView& ring, int tree) {
  const TreePlace place =
      tree == 0 ? first_tree(ring.nranks, ring.position) : second_tree(ring.nranks, ring.position);
  TreeChildren children;
  for (const int down : place.down) {
    if (down != kNoPlace) {
      children.ranks[children.count++] = ring.at(down);
    }
  }
  if (place.up == kNoPlace) {
    if (prims.lane(0)) {
      prims.recv_reduce_copy_send(children, Buffer::kInput, Buffer::kOutput, 0, children,
                                  Complete::kYes);
    }
    return;
  }
  const int parent = ring.at(place.up);
  if (children.count == 0) {
    if (prims.lane(0)) {
      prims.send(Buffer::kInput, 0, parent);
    }
    if (prims.lane(1)) {
      prims.recv(parent, Buffer::kOutput, 0);
    }
    return;
  }
  if (prims.lane(0)) {
    prims.recv_reduce_send(children, Buffer::kInput, 0, parent);
  }
  if (prims.lane(1)) {
    prims.recv_copy_send(parent, Buffer::kOutput, 0, children);
  }
}

}  // namespace plexus
