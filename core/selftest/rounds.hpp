// SPDX-License-Identifier: Apache-2.0
// Which links are tried when: in the rounds of shift s = 1, 2, 4, ... up to half of the ranks, rank
// r meets r + s. Those pairs form circles; colouring their edges alternately gives rounds in which
// every rank has one partner at most, so that 2 to 3 times log2(nranks) rounds try all of them.
//
//   for (const Round& round : list_rounds(nranks)) {
//     if (const auto peer = partner_of(round, rank, nranks); peer.has_value()) {
//       // try the link with *peer
//     }
//   }
#pragma once

#include <optional>
#include <vector>

namespace plexus {

struct Round {
  int shift;
  int color;  // of the edges of each circle
};

[[nodiscard]] std::vector<Round> list_rounds(int nranks);
/// Symmetric; nullopt: the rank has none in this round.
[[nodiscard]] std::optional<int> partner_of(const Round& round, int rank, int nranks);

}  // namespace plexus
