// SPDX-License-Identifier: Apache-2.0
#include "core/topo/double_tree.hpp"

#include <algorithm>
#include <bit>

namespace plexus {
namespace {

int highest_power_within(int value) {
  return static_cast<int>(std::bit_floor(static_cast<unsigned>(value)));
}

/// Moves every node number of `place`.
template <class Move>
TreePlace moved(TreePlace place, Move move) {
  const auto move_one = [&](int& node) { node = node < 0 ? node : move(node); };
  move_one(place.up);
  move_one(place.down[0]);
  move_one(place.down[1]);
  return place;
}

}  // namespace

TreePlace first_tree(int count, int node) {
  TreePlace place;
  if (node == 0) {
    place.down[1] = count > 1 ? highest_power_within(count - 1) : -1;
    return place;
  }
  const int bit = node & -node;  // how far the node is above the leaves
  const int higher = (node ^ bit) | (bit << 1);
  place.up = higher < count ? higher : node ^ bit;
  place.child_of_up = node < place.up ? 0 : 1;
  if (bit > 1) {
    const int reach = bit / 2;
    place.down[0] = node - reach;
    const int room = count - 1 - node;
    place.down[1] = room > 0 ? node + std::min(reach, highest_power_within(room)) : -1;
  }
  return place;
}

TreePlace second_tree(int count, int node) {
  if (count % 2 == 0) {
    return moved(first_tree(count, count - 1 - node),
                 [count](int other) { return count - 1 - other; });
  }
  return moved(first_tree(count, (node + count - 1) % count),
               [count](int other) { return (other + 1) % count; });
}

}  // namespace plexus
