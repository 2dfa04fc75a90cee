// SPDX-License-Identifier: Apache-2.0
// A ring from the view of one rank: the rank of `next`, the rank `behind(k)` places, and so on.
#pragma once

#include "kernels/layout/macros.hpp"

namespace plexus {

/// `order`: [nranks] ranks in ring order, borrowed. `position`: the place of this rank in it.
/// `direction`: 1, or -1 for the same ring in the other direction.
struct RingView {
  const int* order;
  int nranks;
  int position;
  int direction = 1;

  [[nodiscard]] PLEXUS_HOST_DEVICE int self() const { return order[position]; }
  [[nodiscard]] PLEXUS_HOST_DEVICE int next() const { return at(position + direction); }
  [[nodiscard]] PLEXUS_HOST_DEVICE int prev() const { return behind(1); }
  /// The rank `steps` places before this one, 0 <= steps <= nranks.
  [[nodiscard]] PLEXUS_HOST_DEVICE int behind(int steps) const {
    return at(position - direction * steps);
  }
  /// The rank at `place`, -nranks <= place < 2 * nranks.
  [[nodiscard]] PLEXUS_HOST_DEVICE int at(int place) const {
    return order[(place + nranks) % nranks];
  }
  /// Number of places from `root` to this rank, 0..nranks-1.
  [[nodiscard]] PLEXUS_HOST_DEVICE int places_after(int root) const {
    for (int steps = 0; steps < nranks; ++steps) {
      if (behind(steps) == root) {
        return steps;
      }
    }
    return -1;
  }
};

}  // namespace plexus
