// SPDX-License-Identifier: Apache-2.0
// Two binary trees over the same ranks in which every rank is interior in at most one (Sanders,
// Speck, Traeff, "Two-tree algorithms for full bandwidth broadcast, reduction and scan", 2009), in
// NCCL's construction: in the first tree the parent of a place follows from its lowest set bit; the
// second tree is the first one mirrored (even number of places) or shifted by one (odd). Works for
// any number of ranks; computing a place takes O(log nranks).
#pragma once

#include "kernels/layout/macros.hpp"

namespace plexus {

inline constexpr int kNoPlace = -1;

/// A place in a tree: its parent, its index (0 or 1) among the parent's children, and its own
/// children; kNoPlace where there is none.
struct TreePlace {
  int up = kNoPlace;
  int child_of_up = 0;
  int down[2] = {kNoPlace, kNoPlace};
  friend bool operator==(const TreePlace&, const TreePlace&) = default;
};

/// Place `place` of `nplaces` in the first tree. The root is place 0; its only child is the second
/// one.
PLEXUS_HOST_DEVICE constexpr TreePlace first_tree(int nplaces, int place) {
  TreePlace tree;
  int bit = 1;
  while (bit < nplaces && (place & bit) == 0) {
    bit *= 2;
  }
  if (place == 0) {
    tree.down[1] = nplaces > 1 ? bit / 2 : kNoPlace;
    return tree;
  }
  const int above = (place ^ bit) | (bit * 2);
  tree.up = above < nplaces ? above : place ^ bit;
  tree.child_of_up = place < tree.up ? 0 : 1;
  if (bit > 1) {
    tree.down[0] = place - bit / 2;
    int step = bit / 2;
    while (step > 0 && place + step >= nplaces) {
      step /= 2;
    }
    tree.down[1] = step > 0 ? place + step : kNoPlace;
  }
  return tree;
}

/// Place `place` of `nplaces` in the second tree.
PLEXUS_HOST_DEVICE constexpr TreePlace second_tree(int nplaces, int place) {
  const bool mirrored = nplaces % 2 == 0;
  const int other = mirrored ? nplaces - 1 - place : (place - 1 + nplaces) % nplaces;
  TreePlace tree = first_tree(nplaces, other);
  const auto move = [&](int& at) {
    if (at != kNoPlace) {
      at = mirrored ? nplaces - 1 - at : (at + 1) % nplaces;
    }
  };
  move(tree.up);
  move(tree.down[0]);
  move(tree.down[1]);
  return tree;
}

/// The root of first_tree or second_tree.
PLEXUS_HOST_DEVICE constexpr int root_place(int tree, int nplaces) {
  return tree == 0 || nplaces == 1 ? 0 : nplaces % 2 == 0 ? nplaces - 1 : 1;
}

/// A place in a tree over places that are grouped in nodes (hosts): one tree per node, and one tree
/// over the nodes that connects the roots of the nodes' trees. Node i has the places starts[i] ..
/// starts[i + 1] - 1, the last one up to nplaces - 1. Only edges of the upper tree join two nodes.
/// The depth is the sum of both trees' depths.
struct NodesTreePlace {
  int up = kNoPlace;
  int downs = 0;
  int down[4] = {kNoPlace, kNoPlace, kNoPlace, kNoPlace};  // in the node, then in other nodes
};

PLEXUS_HOST_DEVICE constexpr TreePlace place_in_tree(int tree, int nplaces, int place) {
  return tree == 0 ? first_tree(nplaces, place) : second_tree(nplaces, place);
}

PLEXUS_HOST_DEVICE constexpr NodesTreePlace nodes_tree(
    int tree, const int* starts, int nnodes, int nplaces, int place) {
  int node = 0;
  for (int beyond = nnodes; beyond - node > 1;) {
    const int middle = (node + beyond) / 2;
    (starts[middle] <= place ? node : beyond) = middle;
  }
  const auto places_of = [&](int at) {
    return (at + 1 < nnodes ? starts[at + 1] : nplaces) - starts[at];
  };
  const auto root_of = [&](int at) { return starts[at] + root_place(tree, places_of(at)); };
  NodesTreePlace result;
  const auto add_down = [&](int at) { result.down[result.downs++] = at; };
  const TreePlace inside = place_in_tree(tree, places_of(node), place - starts[node]);
  result.up = inside.up == kNoPlace ? kNoPlace : starts[node] + inside.up;
  for (const int down : inside.down) {
    if (down != kNoPlace) {
      add_down(starts[node] + down);
    }
  }
  if (inside.up != kNoPlace) {
    return result;
  }
  const TreePlace above = place_in_tree(tree, nnodes, node);
  result.up = above.up == kNoPlace ? kNoPlace : root_of(above.up);
  for (const int down : above.down) {
    if (down != kNoPlace) {
      add_down(root_of(down));
    }
  }
  return result;
}

}  // namespace plexus
