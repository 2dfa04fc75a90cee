// SPDX-License-Identifier: Apache-2.0
#include "core/selftest/rounds.hpp"

#include <numeric>

namespace plexus {
namespace {

/// Of the edge from place `place` of a circle to the next: an odd circle needs a third color for
/// its last edge, and one of two ranks has one edge.
int color_of(int place, int length) {
  return length % 2 == 1 && place == length - 1 ? 2 : place % 2;
}

}  // namespace

std::vector<Round> list_rounds(int nranks) {
  std::vector<Round> rounds;
  for (int shift = 1; shift <= nranks / 2; shift *= 2) {
    const int length = nranks / std::gcd(nranks, shift);
    const int colors = length == 2 ? 1 : 2 + length % 2;
    for (int color = 0; color < colors; ++color) {
      rounds.push_back({.shift = shift, .color = color});
    }
  }
  return rounds;
}

std::optional<int> partner_of(const Round& round, int rank, int nranks) {
  const int circles = std::gcd(nranks, round.shift);
  const int length = nranks / circles;
  int place = 0;
  for (int at = rank % circles; at != rank; at = (at + round.shift) % nranks) {
    ++place;
  }
  if (color_of(place, length) == round.color) {
    return (rank + round.shift) % nranks;
  }
  if (color_of((place + length - 1) % length, length) == round.color) {
    return (rank + nranks - round.shift) % nranks;
  }
  return std::nullopt;
}

}  // namespace plexus
