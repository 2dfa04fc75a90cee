// SPDX-License-Identifier: Apache-2.0
#include "core/control/gathered.hpp"

#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace plexus {
namespace {

TEST(Gathered, BringsEveryBlobToItsRank) {
  for (const uint32_t nkinds : {1U, 2U, 300U, 70'000U}) {  // every width of an index
    const uint32_t nranks = std::max(nkinds, 5U);
    Contributions leaf;
    Contributions root;
    std::vector<uint32_t> members;
    for (uint32_t i = 0; i < nranks; ++i) {
      const uint32_t rank = nranks - 1 - i;
      members.push_back(rank);
      (rank % 3 == 0 ? root : leaf).add(rank, "blob " + std::to_string(rank % nkinds));
    }
    std::vector<uint32_t> merged;
    ASSERT_TRUE(root.merge(leaf.encode(), merged).has_value());
    EXPECT_EQ(root.size(), nranks);
    EXPECT_EQ(merged.size(), leaf.size());
    const auto gathered = Gathered::decode(root.encode_result(members).value());
    ASSERT_TRUE(gathered.has_value());
    ASSERT_EQ(gathered.value().size(), nranks);
    EXPECT_EQ(gathered.value().kinds(), nkinds);
    for (uint32_t i = 0; i < nranks; ++i) {
      ASSERT_EQ(gathered.value()[i], "blob " + std::to_string(members[i] % nkinds));
    }
  }
}

TEST(Gathered, EqualBlobsTravelOnce) {
  Contributions contributions;
  std::vector<uint32_t> members;
  for (uint32_t rank = 0; rank < 1000; ++rank) {
    contributions.add(rank, std::string(1000, 'x'));
    members.push_back(rank);
  }
  EXPECT_LT(contributions.encode_result(members).value().size(), 1100U);
  EXPECT_LT(contributions.encode().size(), 1100U + 4 * 1000U);
}

TEST(Gathered, AnIndexHasNoMoreBytesThanTheNumberOfBlobsNeeds) {
  Contributions contributions;
  uint32_t count = 0;
  for (const auto& [kinds, index_bytes] :
       {std::pair(1U, 0U), std::pair(2U, 1U), std::pair(256U, 1U), std::pair(257U, 2U),
        std::pair(65'536U, 2U), std::pair(65'537U, 4U)}) {
    for (; count < kinds; ++count) {
      contributions.add(count, std::to_string(count));
    }
    const size_t before = contributions.encode().size();
    contributions.add(1'000'000, "0");
    EXPECT_EQ(contributions.encode().size() - before, sizeof(uint32_t) + index_bytes) << kinds;
  }
}

TEST(Gathered, OfNobodyIsNothing) {
  Contributions root;
  std::vector<uint32_t> merged;
  EXPECT_TRUE(root.merge(Contributions().encode(), merged).has_value());
  EXPECT_TRUE(merged.empty());
  EXPECT_EQ(root.size(), 0U);
}

TEST(Gathered, NeedsEveryMemberOnce) {
  Contributions contributions;
  contributions.add(3, "a");
  contributions.add(5, "b");
  EXPECT_TRUE(contributions.encode_result(std::vector<uint32_t>{5, 3}).has_value());
  EXPECT_TRUE(contributions.encode_result(std::vector<uint32_t>{5, 3, 4}).has_error());
  contributions.add(5, "b");
  EXPECT_TRUE(contributions.encode_result(std::vector<uint32_t>{5, 3}).has_error());
}

TEST(Gathered, RefusesDamage) {
  Contributions contributions;
  for (uint32_t rank = 0; rank < 4; ++rank) {
    contributions.add(rank, std::to_string(rank));
  }
  const std::string up = contributions.encode();
  const std::string down = contributions.encode_result(std::vector<uint32_t>{0, 1, 2, 3}).value();
  for (size_t size = 0; size < up.size(); ++size) {
    Contributions other;
    std::vector<uint32_t> ranks;
    EXPECT_TRUE(other.merge(up.substr(0, size), ranks).has_error()) << size;
    EXPECT_EQ(other.size(), 0U);
  }
  for (size_t size = 0; size < down.size(); ++size) {
    EXPECT_TRUE(Gathered::decode(down.substr(0, size)).has_error()) << size;
  }
  std::string wrong = down;
  for (const char blob : {'\4', '\x9'}) {  // which are not there
    wrong.back() = blob;
    EXPECT_TRUE(Gathered::decode(wrong).has_error()) << int{blob};
  }
}

TEST(Gathered, IsMadeOfAList) {
  const Gathered gathered(std::vector<std::string>{"a", "", "a"});
  ASSERT_EQ(gathered.size(), 3U);
  EXPECT_EQ(gathered.kinds(), 2U);
  EXPECT_EQ(gathered.front(), "a");
  EXPECT_EQ(gathered[1], "");
  EXPECT_EQ(gathered.back(), "a");
  EXPECT_EQ(Gathered().size(), 0U);
}

}  // namespace
}  // namespace plexus
