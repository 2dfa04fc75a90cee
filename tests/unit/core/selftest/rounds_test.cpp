// SPDX-License-Identifier: Apache-2.0
#include "core/selftest/rounds.hpp"

#include <set>
#include <utility>

#include <gtest/gtest.h>

namespace plexus {
namespace {

using Pair = std::pair<int, int>;

TEST(Rounds, PairsAreSymmetricAndEveryShiftIsTriedOnce) {
  for (int nranks = 1; nranks <= 70; ++nranks) {
    std::multiset<Pair> met;
    for (const Round& round : list_rounds(nranks)) {
      for (int rank = 0; rank < nranks; ++rank) {
        const auto peer = partner_of(round, rank, nranks);
        if (peer.has_value()) {
          ASSERT_NE(*peer, rank) << nranks;
          ASSERT_EQ(partner_of(round, *peer, nranks), rank) << nranks << " shift " << round.shift;
          met.insert({rank, *peer});
        }
      }
    }
    std::set<Pair> wanted;
    for (int shift = 1; shift <= nranks / 2; shift *= 2) {
      for (int rank = 0; rank < nranks; ++rank) {
        wanted.insert({rank, (rank + shift) % nranks});
        wanted.insert({(rank + shift) % nranks, rank});
      }
    }
    EXPECT_EQ(std::set<Pair>(met.begin(), met.end()), wanted) << nranks;
    EXPECT_EQ(met.size(), wanted.size()) << nranks << ": a pair meets twice";
  }
}

TEST(Rounds, TheirNumberIsLogarithmic) {
  EXPECT_EQ(list_rounds(1).size(), 0U);
  EXPECT_EQ(list_rounds(2).size(), 1U);
  EXPECT_EQ(list_rounds(4).size(), 3U);
  EXPECT_EQ(list_rounds(1024).size(), 19U);
  EXPECT_LE(list_rounds(99'999).size(), 3U * 16U);
}

}  // namespace
}  // namespace plexus
