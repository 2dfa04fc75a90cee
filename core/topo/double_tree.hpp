// SPDX-License-Identifier: Apache-2.0
// Two binary trees over any number of nodes, such that a node is inside at most one of them and a
// leaf of the other (but for the smallest numbers): together they load every node alike, and each
// needs log2(n) steps. A node's place is computed from its number alone.
//
//   first tree, 6 nodes:   0            second (mirrored: 5 - node):   5
//                           `-4                                     1-'
//                          2   5                                  0   3
//                         1 3                                        4 2
#pragma once

#include <array>
#include <cstdint>

namespace plexus {

struct TreePlace {
  int up = -1;          // -1: the root
  int child_of_up = 0;  // which child of `up` this node is: 0 or 1
  std::array<int, 2> down = {-1, -1};
  friend bool operator==(const TreePlace&, const TreePlace&) = default;
};

/// Node `node` of `count` in the first tree. O(1).
TreePlace first_tree(int count, int node);
/// The same in the second tree.
TreePlace second_tree(int count, int node);

}  // namespace plexus
