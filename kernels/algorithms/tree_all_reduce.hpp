// SPDX-License-Identifier: Apache-2.0
// Double binary tree all-reduce: up a binary tree to its root and down again, as two lanes that
// overlap over loops. Odd channels use the second tree (binary_tree.hpp), so that with two channels
// every rank sends about as much as it receives. If ranks are grouped in nodes (hosts), each node
// is a tree below a tree over the nodes; over several datacenters each has such a tree, and hangs
// by its root below a rank of another one. Chunks per loop: 1. Steps: 2 x depth, depth <=
// log2(nranks) + 1, with nodes the sum of both trees' depths. Chunks sent: 3 by an interior rank
// (one up, two down; 4 by the root of a node), 1 by a leaf; one more per datacenter below the rank.
#pragma once

#include "kernels/algorithms/binary_tree.hpp"
#include "kernels/algorithms/prims.hpp"
#include "kernels/algorithms/ring_view.hpp"

namespace plexus {

/// A rank has at most 2 children in its node and 2 in other nodes; the rest are datacenters.
inline constexpr int kTreeChildrenMax = 64;

/// The ranks of a place's children; in a reduction the own contribution comes first.
struct TreeChildren {
  int ranks[kTreeChildrenMax] = {};
  int count = 0;
  PLEXUS_HOST_DEVICE constexpr void add(int rank) { ranks[count++] = rank; }
  [[nodiscard]] PLEXUS_HOST_DEVICE constexpr int size() const { return count; }
  PLEXUS_HOST_DEVICE constexpr int operator[](int index) const { return ranks[index]; }
  [[nodiscard]] PLEXUS_HOST_DEVICE static constexpr int own_position() { return 0; }
};

/// Ranks of other datacenters: above the root of this datacenter's tree (kNoPlace: none), and below
/// this rank.
struct TreeBorder {
  int above = kNoPlace;
  TreeChildren below;
};

/// `parent`: the rank of the parent, kNoPlace at the root.
template <class Prims>
PLEXUS_HOST_DEVICE void tree_all_reduce_at(Prims& prims, int parent, const TreeChildren& children) {
  if (parent == kNoPlace) {
    if (prims.lane(0)) {
      prims.recv_reduce_copy_send(children, Buffer::kInput, Buffer::kOutput, 0, children,
                                  Complete::kYes);
    }
    return;
  }
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

/// `starts`: [nnodes] first places of the nodes, ascending from 0, borrowed.
template <class Prims>
PLEXUS_HOST_DEVICE void tree_all_reduce(Prims& prims,
                                        const RingView& ring,
                                        int tree,
                                        const int* starts,
                                        int nnodes,
                                        const TreeBorder& border = {}) {
  const NodesTreePlace place = nodes_tree(tree, starts, nnodes, ring.nranks, ring.position);
  TreeChildren children;
  for (int child = 0; child < place.downs; ++child) {
    children.add(ring.at(place.down[child]));
  }
  for (int child = 0; child < border.below.size(); ++child) {
    children.add(border.below[child]);
  }
  tree_all_reduce_at(prims, place.up != kNoPlace ? ring.at(place.up) : border.above, children);
}

}  // namespace plexus
