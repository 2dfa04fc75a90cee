// SPDX-License-Identifier: Apache-2.0
// What the user selects: NCCL_IB_HCA's grammar, and the choice of a port's address.
#include <arpa/inet.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plugins/net-ib/gid.hpp"
#include "plugins/net-ib/hca_filter.hpp"

namespace plexus::net_ib {
namespace {

using testing::HasSubstr;

HcaFilter filter(std::string_view text, HcaSyntax syntax = HcaSyntax::kRail) {
  auto parsed = HcaFilter::parse(text, syntax);
  EXPECT_TRUE(parsed.has_value()) << text;
  return parsed.has_value() ? parsed.value() : HcaFilter();
}
std::string filter_error(std::string_view text, HcaSyntax syntax = HcaSyntax::kRail) {
  const auto parsed = HcaFilter::parse(text, syntax);
  return parsed.has_error() ? parsed.error().text : "accepted";
}

TEST(HcaFilter, NothingSelectsAll) {
  EXPECT_TRUE(filter("").find("mlx5_0", 1).has_value());
  EXPECT_TRUE(filter(",,").find("mlx5_0", 1).has_value());
}

TEST(HcaFilter, NamesArePrefixes) {
  EXPECT_TRUE(filter("mlx5").find("mlx5_3", 1).has_value());
  EXPECT_TRUE(filter("mlx5_1").find("mlx5_10", 1).has_value());
  EXPECT_FALSE(filter("mlx5_1").find("mlx5_2", 1).has_value());
}

TEST(HcaFilter, EqualsSignMeansFullNames) {
  EXPECT_FALSE(filter("=mlx5_1").find("mlx5_10", 1).has_value());
  EXPECT_TRUE(filter("=mlx5_1,mlx5_10").find("mlx5_10", 1).has_value());
}

TEST(HcaFilter, CaretExcludes) {
  EXPECT_FALSE(filter("^mlx5_1").find("mlx5_10", 1).has_value());
  EXPECT_TRUE(filter("^=mlx5_1").find("mlx5_10", 1).has_value());
  EXPECT_FALSE(filter("^=mlx5_1").find("mlx5_1", 2).has_value());
  EXPECT_TRUE(filter("^=mlx5_1:1").find("mlx5_1", 2).has_value());
}

TEST(HcaFilter, PortSelectsOne) {
  EXPECT_TRUE(filter("=mlx5_0:2").find("mlx5_0", 2).has_value());
  EXPECT_FALSE(filter("=mlx5_0:2").find("mlx5_0", 1).has_value());
}

TEST(HcaFilter, RailAndPlaneFollowThePort) {
  const auto found = filter("=mlx5_0:1:3:2,mlx5_1::4").find("mlx5_0", 1);
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->rail, 3);
  EXPECT_EQ(found->plane, 2);
  const auto other = filter("=mlx5_0:1:3:2,mlx5_1::4").find("mlx5_1", 7);
  ASSERT_TRUE(other.has_value());
  EXPECT_EQ(other->rail, 4);
  EXPECT_EQ(other->plane, -1);
}

TEST(HcaFilter, FabricIdInThatSyntax) {
  const auto found = filter("=mlx5_0:1:8", HcaSyntax::kFabricId).find("mlx5_0", 1);
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->fabric_id, 8U);
  EXPECT_EQ(found->rail, -1);
}

TEST(HcaFilter, FirstMatchWins) {
  EXPECT_EQ(filter("mlx5:1:5,=mlx5_0:1:6").find("mlx5_0", 1)->rail, 5);
}

TEST(HcaFilter, MistakesAreNamed) {
  EXPECT_THAT(filter_error("mlx5_0:x"), HasSubstr("'x' of the entry 'mlx5_0:x'"));
  EXPECT_THAT(filter_error("mlx5_0:300"), HasSubstr("0..255"));
  EXPECT_THAT(filter_error("mlx5_0:1:2:3:4"), HasSubstr("name:port:rail:plane"));
  EXPECT_THAT(filter_error("a:1:2:3", HcaSyntax::kFabricId), HasSubstr("name:port:fabricId"));
  EXPECT_THAT(filter_error(":1"), HasSubstr("no name"));
  EXPECT_THAT(filter_error("^mlx5_0:1:2"), HasSubstr("excluded"));
  std::string many = "a";
  for (int i = 0; i < 40; ++i) {
    many += ",b";
  }
  EXPECT_THAT(filter_error(many), HasSubstr("41 entries"));
}

Gid gid(uint32_t index, GidKind kind, const char* address) {
  Gid made{index, kind, {}};
  if (::inet_pton(AF_INET6, address, made.bytes.data()) != 1) {
    ADD_FAILURE() << address;
  }
  return made;
}

/// A usual RoCE port: each address in both versions of RoCE.
std::vector<Gid> usual_port() {
  return {gid(0, GidKind::kRoceV1, "fe80::1"),
          gid(1, GidKind::kRoceV2, "fe80::1"),
          gid(2, GidKind::kRoceV1, "::ffff:10.1.2.3"),
          gid(3, GidKind::kRoceV2, "::ffff:10.1.2.3"),
          gid(4, GidKind::kRoceV2, "::ffff:192.168.1.3"),
          gid(5, GidKind::kRoceV2, "fd00::3")};
}

uint32_t chosen(const GidWish& wish) {
  const auto found = choose_gid(usual_port(), wish, "port 1 of x");
  EXPECT_TRUE(found.has_value());
  return found.has_value() ? found.value().index : ~0U;
}

TEST(GidChoice, Ipv4InRoceV2IsTheDefault) { EXPECT_EQ(chosen({}), 3U); }

TEST(GidChoice, FamilyAndVersionCanBeWished) {
  GidWish wish;
  wish.prefers_ipv4 = false;
  EXPECT_EQ(chosen(wish), 5U);  // not the link-local one
  wish.prefers_ipv4 = true;
  wish.roce_version = 1;
  EXPECT_EQ(chosen(wish), 2U);
}

TEST(GidChoice, RangeIsCompulsory) {
  GidWish wish;
  wish.range = AddressRange::parse("192.168.0.0/16").value();
  EXPECT_EQ(chosen(wish), 4U);
  wish.range = AddressRange::parse("fd00::/9").value();
  EXPECT_EQ(chosen(wish), 5U);
  wish.range = AddressRange::parse("172.16.0.0/12").value();
  const auto found = choose_gid(usual_port(), wish, "port 1 of x");
  ASSERT_TRUE(found.has_error());
  EXPECT_THAT(found.error().text, HasSubstr("port 1 of x has no address in NCCL_IB_ADDR_RANGE"));
}

TEST(GidChoice, IndexIsCompulsory) {
  GidWish wish;
  wish.index = 1;
  EXPECT_EQ(chosen(wish), 1U);
  wish.index = 9;
  const auto found = choose_gid(usual_port(), wish, "port 1 of x");
  ASSERT_TRUE(found.has_error());
  EXPECT_THAT(found.error().text, HasSubstr("NCCL_IB_GID_INDEX=9"));
}

TEST(GidChoice, NoAddressIsAnError) { EXPECT_TRUE(choose_gid({}, {}, "port 1 of x").has_error()); }

TEST(AddressRange, BitsCountFromTheAddressesOwnStart) {
  EXPECT_TRUE(AddressRange::parse("10.0.0.0/7")
                  .value()
                  .contains(gid(0, GidKind::kRoceV2, "::ffff:11.0.0.1").bytes));
  EXPECT_FALSE(AddressRange::parse("10.0.0.0/8")
                   .value()
                   .contains(gid(0, GidKind::kRoceV2, "::ffff:11.0.0.1").bytes));
  EXPECT_FALSE(
      AddressRange::parse("0.0.0.0/0").value().contains(gid(0, GidKind::kRoceV2, "fd00::1").bytes));
}

TEST(AddressRange, MistakesAreErrors) {
  for (const char* bad :
       {"10.0.0.0", "10.0.0.0/33", "fd00::/129", "x/8", "10.0.0.0/", "10.0.0.0/8x"}) {
    EXPECT_TRUE(AddressRange::parse(bad).has_error()) << bad;
  }
}

TEST(Gid, TextIsThatOfItsAddress) {
  EXPECT_EQ(gid(0, GidKind::kRoceV2, "::ffff:10.1.2.3").text(), "10.1.2.3");
  EXPECT_EQ(gid(0, GidKind::kRoceV2, "fe80::1").text(), "fe80::1");
}

}  // namespace
}  // namespace plexus::net_ib
