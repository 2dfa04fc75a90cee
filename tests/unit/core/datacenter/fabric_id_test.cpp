// SPDX-License-Identifier: Apache-2.0
#include "core/datacenter/fabric_id.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace plexus::testing {
namespace {

using ::testing::HasSubstr;
using Level = FabricAnswer::Level;

TEST(FabricId, IsDatacenterTimesRailsPlusRail) {
  EXPECT_EQ(split_fabric_id(9, 8), (FabricPlace{.datacenter = 1, .rail = 1}));
  EXPECT_EQ(fabric_level(0, 1, 8), Level::kDisconnected);  // another rail
  EXPECT_EQ(fabric_level(0, 8, 8), Level::kOther);
  EXPECT_EQ(fabric_level(9, 9, 8), Level::kSame);
  // With the default number of rails all ids are in datacenter 0 and differ in their rails.
  EXPECT_EQ(fabric_level(1, 2, kFabricRailsDefault), Level::kDisconnected);
}

TEST(HcaList, ThirdFieldIsWhatTheSyntaxSays) {
  const HcaList ids = parse_hca_list("=mlx5_0:1:8,mlx5_1::0x9", HcaSyntax::kFabricId).value();
  EXPECT_TRUE(ids.exact);
  EXPECT_EQ(ids.find("mlx5_0", 1)->fabric_id, 8U);
  EXPECT_EQ(ids.find("mlx5_0", 2), nullptr);
  EXPECT_EQ(ids.find("mlx5_1", 2)->fabric_id, 9U);  // all ports
  EXPECT_EQ(ids.find("mlx5_10", 1), nullptr);
  const HcaList rails = parse_hca_list("mlx5_1:1:2:3", HcaSyntax::kRailAndPlane).value();
  EXPECT_EQ(rails.find("mlx5_10", 1)->rail, 2);  // a beginning
  EXPECT_EQ(rails.find("mlx5_10", 1)->plane, 3);
  EXPECT_EQ(rails.find("mlx5_10", 1)->fabric_id, std::nullopt);
}

TEST(HcaList, SignsBeforeItSayWhatTheNamesMean) {
  const HcaList excluded = parse_hca_list("^=mlx5_0", HcaSyntax::kRailAndPlane).value();
  EXPECT_TRUE(excluded.excludes);
  EXPECT_TRUE(excluded.exact);
  EXPECT_NE(excluded.find("mlx5_0", 1), nullptr);
  EXPECT_EQ(excluded.find("mlx5_01", 1), nullptr);
  const HcaList all = parse_hca_list("^", HcaSyntax::kRailAndPlane).value();
  EXPECT_TRUE(all.excludes);
  EXPECT_TRUE(all.entries.empty());
}

TEST(HcaList, RefusesWhatItCannotMean) {
  const auto error = [](std::string_view text, HcaSyntax syntax) {
    return std::string(parse_hca_list(text, syntax).error().message());
  };
  EXPECT_THAT(error("a:1:2:3", HcaSyntax::kFabricId), HasSubstr("name[:port[:fabricId]]"));
  EXPECT_THAT(error("a:1:281474976710657", HcaSyntax::kFabricId),
              HasSubstr("the fabricId must be in"));
  EXPECT_TRUE(parse_hca_list("a:1:281474976710656", HcaSyntax::kFabricId).has_value());
  EXPECT_THAT(error("a:1:x", HcaSyntax::kFabricId), HasSubstr("'a:1:x'"));
  EXPECT_THAT(error("^a:1:5", HcaSyntax::kFabricId), HasSubstr("cannot give ids"));
  EXPECT_THAT(error("a,,b", HcaSyntax::kRailAndPlane), HasSubstr("an entry must be"));
}

}  // namespace
}  // namespace plexus::testing
