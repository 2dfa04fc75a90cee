// SPDX-License-Identifier: Apache-2.0
// Situations in which another implementation of several concurrent networks fails. The comment
// above each test describes that implementation's bug; the numbers continue those in
// tests/unit/core/datacenter and tests/unit/core/topo.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/transport/network/net.hpp"
#include "core/transport/network/net_set.hpp"
#include "tests/support/net_pair.hpp"

namespace plexus {
namespace {

using testing::HasSubstr;

std::shared_ptr<const NetPlugin> minimal() {
  return test::load_plugin(test::built_file("PLEXUS_TEST_EXAMPLE_DIR", "libplexus-net-minimal.so"));
}

/// The networks of every rank by name; all are the minimal plugin with its one device 0.
std::vector<NetSet> make_sets(const std::vector<std::vector<std::string>>& names) {
  std::vector<NetSet> sets;
  std::vector<std::string> offers;
  for (const auto& of_rank : names) {
    std::vector<OpenNet> nets;
    for (const std::string& name : of_rank) {
      nets.push_back({name, test::make_context(minimal())});
    }
    sets.emplace_back(std::move(nets));
    offers.push_back(sets.back().offers());
  }
  for (NetSet& set : sets) {
    EXPECT_TRUE(set.learn_offers(Gathered(offers)).has_value());
  }
  return sets;
}

/// B1: the preferred network is stored as its loader's slot number and used as an index into the
/// communicator's list: if they differ, another network is used.
TEST(KnownBugs, B1PreferredNetworkIsTheFirstNamedWhateverTheOtherRanksHave) {
  auto sets = make_sets({{"ib", "socket"}, {"external", "ib", "socket"}, {"socket"}});
  const std::vector<PeerInfo> infos(3);
  EXPECT_EQ(sets[0].first(), sets[0].find_path(0, 0, 1, 0, infos).value().context);
  EXPECT_EQ(sets[1].find_path(1, 0, 1, 0, infos).value().route, "ib 0 (unix0) > 0 (unix0)");
  EXPECT_EQ(sets[2].first(), sets[2].find_path(2, 2, 1, 0, infos).value().context);
  EXPECT_EQ(make_sets({{}})[0].first(), nullptr);
}

/// B3: sender and receiver each choose network and NIC; if they differ, both wait.
TEST(KnownBugs, B3BothEndsOfEveryChannelSeeOneRoute) {
  auto sets = make_sets({{"a", "b", "c"}, {"c", "b"}, {"b", "a"}});
  const std::vector<PeerInfo> infos(3);
  for (int source = 0; source < 3; ++source) {
    for (int target = 0; target < 3; ++target) {
      for (uint32_t channel = 0; channel < 4; ++channel) {
        const auto from = static_cast<size_t>(source);
        const auto to = static_cast<size_t>(target);
        const auto sends = sets[from].find_path(source, source, target, channel, infos);
        const auto receives = sets[to].find_path(target, source, target, channel, infos);
        ASSERT_TRUE(sends.has_value() && receives.has_value());
        EXPECT_EQ(sends.value().route, receives.value().route);
      }
    }
  }
}

TEST(KnownBugs, B3RailsAndWidthsThatDifferByNodeChangeTheRouteForBothEnds) {
  NetPath wide;
  wide.bandwidth_mbit_per_s = 400'000;
  NetPath narrow;
  narrow.bandwidth_mbit_per_s = 1'000;
  FabricPaths paths;
  paths.add("n", 1, 1, wide);
  paths.add("n", 2, 2, narrow);
  paths.add("n", 1, 2, narrow);
  paths.add("n", 2, 1, narrow);
  const NetOffers one = {{"n", {{"x", 2, 0, {}}, {"y", 1, 1, {}}}}};
  const NetOffers other = {{"n", {{"z", 1, 1, {}}}}};
  for (uint32_t channel = 0; channel < 4; ++channel) {
    EXPECT_EQ(choose_route(one, other, paths, channel), (NetRoute{0, 0, 1, 0}));
    EXPECT_EQ(choose_route(other, one, paths, channel), (NetRoute{0, 0, 0, 1}));
  }
}

/// B5: connections are shared by device number, rank and channel, regardless of their network.
TEST(KnownBugs, B5DevicesOfOneNumberInTwoNetworksAreTwoContexts) {
  auto sets = make_sets({{"a", "b"}, {"a"}, {"b"}});
  const std::vector<PeerInfo> infos(3);
  const auto by_a = sets[0].find_path(0, 0, 1, 0, infos);
  const auto by_b = sets[0].find_path(0, 0, 2, 0, infos);
  ASSERT_TRUE(by_a.has_value() && by_b.has_value());
  EXPECT_EQ(by_a.value().device, by_b.value().device);
  EXPECT_NE(by_a.value().context, by_b.value().context);
}

/// B10: a search over networks and devices only ends its inner loop and continues with the last
/// network and a device number that this network does not have.
TEST(KnownBugs, B10DeviceIsAlwaysOneOfItsNetwork) {
  const auto with = [](const char* name, uint32_t count) {
    NetOffer offer{.name = name, .devices = {}};
    for (uint32_t device = 0; device < count; ++device) {
      offer.devices.push_back({fmt::format("d{}", device), {}, {}, {}});
    }
    return offer;
  };
  for (uint32_t many = 1; many < 6; ++many) {
    const NetOffers source = {with("wide", many), with("last", 1)};
    const NetOffers target = {with("last", 1), with("wide", 6 - many)};
    for (uint32_t channel = 0; channel < 12; ++channel) {
      const auto route = choose_route(source, target, {}, channel);
      ASSERT_TRUE(route.has_value());
      EXPECT_LT(route->source_device, source.at(route->source_net).devices.size());
      EXPECT_LT(route->target_device, target.at(route->target_net).devices.size());
      EXPECT_EQ(source.at(route->source_net).name, target.at(route->target_net).name);
    }
  }
  // A network without a device is never used, whatever its position.
  EXPECT_EQ(choose_route({with("empty", 0), with("n", 2)}, {with("empty", 0), with("n", 2)}, {}, 1),
            (NetRoute{1, 1, 1, 1}));
}

}  // namespace
}  // namespace plexus
