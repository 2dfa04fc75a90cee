// SPDX-License-Identifier: Apache-2.0
// The grammar of ncclCollConfig_t::algSelection, and what its names select.
#include "core/tuning/algorithm_selection.hpp"

#include <bit>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace plexus {
namespace {

using testing::HasSubstr;

AlgorithmSelection parse(std::string_view text, Collective collective = Collective::kAllReduce) {
  const auto parsed = parse_selection(text, collective);
  EXPECT_TRUE(parsed.has_value()) << text << ": " << parsed.error().message();
  return parsed.has_value() ? parsed.value() : 0;
}

AlgorithmSelection one(const char* algorithm, Protocol protocol) {
  return selection_of(*find_algorithm(algorithm), protocol);
}

AlgorithmSelection all_of(const char* algorithm) {
  return one(algorithm, Protocol::kLL) | one(algorithm, Protocol::kLL128) |
         one(algorithm, Protocol::kSimple);
}

void refuse(std::string_view text,
            const char* why,
            Collective collective = Collective::kAllReduce) {
  const auto parsed = parse_selection(text, collective);
  ASSERT_TRUE(parsed.has_error()) << text;
  EXPECT_EQ(parsed.error().code(), Code::kInvalidArgument);
  EXPECT_THAT(std::string(parsed.error().message()), HasSubstr(why)) << text;
}

TEST(AlgorithmSelection, ANameIsTheBeginningOfNcclsNames) {
  EXPECT_EQ(parse("RING_LL128"), one("ring_all_reduce", Protocol::kLL128));
  EXPECT_EQ(parse("RING_LL"),
            one("ring_all_reduce", Protocol::kLL) | one("ring_all_reduce", Protocol::kLL128));
  EXPECT_EQ(parse("ring"), all_of("ring_all_reduce"));
  EXPECT_EQ(parse("Tree_Simple"), one("tree_all_reduce", Protocol::kSimple));
  EXPECT_EQ(parse("COLLNET_DIRECT_SIMPLE"), one("collnet_direct_all_reduce", Protocol::kSimple));
  EXPECT_EQ(parse("pat", Collective::kAllGather), all_of("pat_all_gather"));
  EXPECT_EQ(parse("swing_simple"), one("swing_all_reduce", Protocol::kSimple));
}

TEST(AlgorithmSelection, CommaUnitesPlusIntersectsAndCaretExcludes) {
  EXPECT_EQ(parse("tree,ring_simple"),
            all_of("tree_all_reduce") | one("ring_all_reduce", Protocol::kSimple));
  EXPECT_EQ(parse("tree+^tree_ll128"),
            one("tree_all_reduce", Protocol::kLL) | one("tree_all_reduce", Protocol::kSimple));
  EXPECT_EQ(parse("^ring") & all_of("ring_all_reduce"), 0U);
  EXPECT_EQ(parse("^ring") | all_of("ring_all_reduce"), parse("^nvls"));
  EXPECT_EQ(parse("^ring+^tree,ring_ll128"),
            (parse("^ring") & parse("^tree")) | one("ring_all_reduce", Protocol::kLL128));
}

TEST(AlgorithmSelection, BlanksAndEmptyPiecesDoNotCount) {
  EXPECT_EQ(parse(" ri ng_si\tmple\n,,"), parse("ring_simple"));
  EXPECT_EQ(parse("tree++^tree_ll,"), parse("tree+^tree_ll"));
}

TEST(AlgorithmSelection, WhatNamesNothingIsRefused) {
  refuse("rang", "'rang' is not the beginning of a name");
  refuse("^", "'' is not the beginning");
  refuse("tree+ring", "'tree+ring' names nothing");
  refuse("ring,tree+ring", "'tree+ring' names nothing");
  refuse("+", "'+' names nothing");
  refuse(" , ", "leaves no algorithm for all_reduce");
  refuse("(ring)", "is not the beginning of a name");
}

TEST(AlgorithmSelection, NamesThatNoRankServesAreKnownAndLeaveNothing) {
  refuse("nvls", "leaves no algorithm for all_reduce");
  refuse("SYMK_RSxLD_AGxST", "leaves no algorithm");
  EXPECT_EQ(parse("nvls,ring"), parse("ring"));
  refuse("tree", "leaves no algorithm for alltoall: it has torus_ll, ", Collective::kAllToAll);
}

TEST(AlgorithmSelection, EveryCombinationHasABitOfItsOwnAndAName) {
  for (int i = 0; i < kCollectiveCount; ++i) {
    const auto collective = static_cast<Collective>(i);
    if (is_point_to_point(collective)) {
      continue;
    }
    AlgorithmSelection all = 0;
    for (const std::string& each : list_selectable(collective)) {
      const std::string longer = each.ends_with("_ll") ? "+^" + each + "128" : "";
      const AlgorithmSelection bit = parse(each + longer, collective);
      EXPECT_EQ(std::popcount(bit), 1) << each;
      EXPECT_EQ(all & bit, 0U) << each;
      all |= bit;
    }
    EXPECT_EQ(all, parse("^nvls", collective)) << name(collective);
  }
}

}  // namespace
}  // namespace plexus
