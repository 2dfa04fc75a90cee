// SPDX-License-Identifier: Apache-2.0
#include "core/transport/network/net_route.hpp"

#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/bytes.hpp"

namespace plexus {
namespace {

using testing::HasSubstr;

NetDeviceOffer device(const char* name) { return {name, {}, {}, {}}; }
NetDeviceOffer fabric(const char* name, uint64_t id) { return {name, id, {}, {}}; }
NetDeviceOffer rail(const char* name, uint32_t id) { return {name, {}, id, {}}; }
NetDeviceOffer plane(const char* name, uint32_t id) { return {name, {}, {}, id}; }

NetOffer net(const char* name, uint32_t devices) {
  NetOffer offer{.name = name, .devices = {}};
  for (uint32_t i = 0; i < devices; ++i) {
    offer.devices.push_back(device(fmt::format("d{}", i).c_str()));
  }
  return offer;
}

NetPath path(uint32_t level,
             std::optional<uint64_t> bandwidth = {},
             std::optional<std::chrono::nanoseconds> latency = {}) {
  NetPath result;
  result.level = level;
  result.bandwidth_mbit_per_s = bandwidth;
  result.latency = latency;
  return result;
}

/// "fast 0>1 1>0": the network of channels 0 .. 3 and their devices; "-": no route.
std::string routes(const NetOffers& source,
                   const NetOffers& target,
                   const FabricPaths& paths = {}) {
  std::string text;
  for (uint32_t channel = 0; channel < 4; ++channel) {
    const auto route = choose_route(source, target, paths, channel);
    if (!route) {
      return "-";
    }
    const std::string name = source.at(route->source_net).name;
    EXPECT_EQ(target.at(route->target_net).name, name);
    text = text.empty() ? name : text;
    EXPECT_TRUE(text.starts_with(name)) << "channels of one pair of ranks use one network";
    text += fmt::format(" {}>{}", route->source_device, route->target_device);
  }
  return text;
}

// ---- choice of the network: a table of cases without fabrics ----

struct ByName {
  NetOffers source;
  NetOffers target;
  const char* expected;
};

TEST(NetRoute, IsTheFirstCommonNetworkByNameWhateverItsPlaceInTheLists) {
  const ByName kCases[] = {
      {{net("fast", 1), net("slow", 1)}, {net("fast", 1), net("slow", 1)}, "fast 0>0 0>0 0>0 0>0"},
      {{net("slow", 1), net("fast", 1)}, {net("slow", 1), net("fast", 1)}, "slow 0>0 0>0 0>0 0>0"},
      // a node without one of them, first or last, at either end
      {{net("fast", 1), net("slow", 1)}, {net("slow", 1)}, "slow 0>0 0>0 0>0 0>0"},
      {{net("slow", 1)}, {net("fast", 1), net("slow", 1)}, "slow 0>0 0>0 0>0 0>0"},
      {{net("fast", 1), net("slow", 1)}, {net("fast", 1)}, "fast 0>0 0>0 0>0 0>0"},
      // three networks, of which two are common; the one that is not common does not shift places
      {{net("a", 1), net("b", 1), net("c", 1)}, {net("b", 1), net("c", 1)}, "b 0>0 0>0 0>0 0>0"},
      {{net("c", 1), net("b", 1)}, {net("a", 1), net("c", 1), net("b", 1)}, "c 0>0 0>0 0>0 0>0"},
      // lists in different order: the same choice from both ends
      {{net("slow", 1), net("fast", 1)}, {net("fast", 1), net("slow", 1)}, "fast 0>0 0>0 0>0 0>0"},
      {{net("fast", 1), net("slow", 1)}, {net("slow", 1), net("fast", 1)}, "fast 0>0 0>0 0>0 0>0"},
      {{net("x", 1), net("a", 1), net("b", 1)}, {net("b", 1), net("a", 1)}, "a 0>0 0>0 0>0 0>0"},
      {{net("b", 1), net("a", 1)}, {net("x", 1), net("a", 1), net("b", 1)}, "a 0>0 0>0 0>0 0>0"},
      // nothing in common
      {{net("fast", 1)}, {net("slow", 1)}, "-"},
      {{}, {net("slow", 1)}, "-"},
      {{}, {}, "-"},
  };
  for (const ByName& each : kCases) {
    EXPECT_EQ(routes(each.source, each.target), each.expected)
        << describe_offers(each.source) << " to " << describe_offers(each.target);
  }
}

TEST(NetRoute, ComparesNamesInAnyCase) {
  const NetOffers source = {net("Socket", 1)};
  const NetOffers target = {net("IB", 1), net("SOCKET", 1)};
  EXPECT_EQ(choose_route(source, target, {}, 0), (NetRoute{0, 1, 0, 0}));
}

// ---- which devices ----

TEST(NetRoute, ChannelsTakeTurnsOverEqualNumbersOfDevices) {
  EXPECT_EQ(routes({net("n", 2)}, {net("n", 2)}), "n 0>0 1>1 0>0 1>1");
  EXPECT_EQ(routes({net("n", 4)}, {net("n", 4)}), "n 0>0 1>1 2>2 3>3");
  EXPECT_EQ(routes({net("n", 2)}, {net("n", 4)}), "n 0>0 1>1 0>2 1>3");
  EXPECT_EQ(routes({net("n", 1)}, {net("n", 3)}), "n 0>0 0>1 0>2 0>0");
}

TEST(NetRoute, StaysOnItsRailWhereRailsAreKnown) {
  const NetOffers source = {{"n", {rail("a", 0), rail("b", 1)}}};
  const NetOffers swapped = {{"n", {rail("b", 1), rail("a", 0)}}};
  EXPECT_EQ(routes(source, swapped), "n 0>1 1>0 0>1 1>0");
  // a node with one of the rails only
  EXPECT_EQ(routes(source, {{"n", {rail("b", 1)}}}), "n 1>0 1>0 1>0 1>0");
  // no common rail: crossing rails is better than no connection
  EXPECT_EQ(routes({{"n", {rail("a", 0)}}}, {{"n", {rail("b", 1)}}}), "n 0>0 0>0 0>0 0>0");
}

TEST(NetRoute, NeverLeavesItsPlane) {
  const NetOffers source = {{"n", {plane("a", 0), plane("b", 1)}}};
  EXPECT_EQ(routes(source, {{"n", {plane("b", 1), plane("a", 0)}}}), "n 0>1 1>0 0>1 1>0");
  EXPECT_EQ(routes({{"n", {plane("a", 0)}}}, {{"n", {plane("b", 1)}}}), "-");
  EXPECT_EQ(
      routes({{"n", {plane("a", 0)}}, net("slow", 1)}, {{"n", {plane("b", 1)}}, net("slow", 1)}),
      "slow 0>0 0>0 0>0 0>0");
}

// ---- with fabrics ----

TEST(NetRoute, UsesOnlyDevicesThatReachEachOther) {
  FabricPaths paths;
  NetPath none;
  none.connected = false;
  for (const auto& [from, to] : {std::pair(1, 2), std::pair(2, 1)}) {
    paths.add("n", static_cast<uint64_t>(from), static_cast<uint64_t>(to), none);
  }
  const NetOffers both = {{"n", {fabric("a", 1), fabric("b", 2)}}, net("slow", 1)};
  const NetOffers second = {{"n", {fabric("c", 2)}}, net("slow", 1)};
  const NetOffers first = {{"n", {fabric("d", 1)}}, net("slow", 1)};
  EXPECT_EQ(routes(both, second, paths), "n 1>0 1>0 1>0 1>0");
  EXPECT_EQ(routes(second, both, paths), "n 0>1 0>1 0>1 0>1");
  EXPECT_EQ(routes(first, second, paths),
            "slow 0>0 0>0 0>0 0>0");  // because the first network is not connected
  EXPECT_EQ(routes({first[0]}, {second[0]}, paths), "-");
}

TEST(NetRoute, PrefersTheNearerThenTheWiderThenTheQuickerNetwork) {
  const NetOffers source = {{"a", {fabric("x", 1)}}, {"b", {fabric("y", 1)}}};
  const NetOffers& target = source;
  const auto chosen = [&](const NetPath& a, const NetPath& b) {
    FabricPaths paths;
    paths.add("a", 1, 1, a);
    paths.add("b", 1, 1, b);
    return routes(source, target, paths).front();
  };
  using std::chrono::nanoseconds;
  EXPECT_EQ(chosen(path(1), path(0)), 'b');
  EXPECT_EQ(chosen(path(0), path(1)), 'a');
  EXPECT_EQ(chosen(path(0, 100), path(0, 200)), 'b');
  EXPECT_EQ(chosen(path(1, 200), path(0, 100)), 'b');  // the level has priority
  EXPECT_EQ(chosen(path(0, 100, nanoseconds(5)), path(0, 100, nanoseconds(2))), 'b');
  // values that only one of them has cannot be compared: the order of the lists decides
  EXPECT_EQ(chosen(path(0, 100), path(0)), 'a');
  EXPECT_EQ(chosen(path(0), path(0, 100)), 'a');
  EXPECT_EQ(chosen(NetPath{}, path(0)), 'a');
  EXPECT_EQ(chosen(path(5), NetPath{}), 'a');
}

TEST(NetRoute, LeavesOutDevicesThatAreFartherOrMuchNarrower) {
  const NetOffers source = {{"n", {fabric("a", 1), fabric("b", 2), fabric("c", 3)}}};
  const NetOffers target = {{"n", {fabric("t", 1)}}};
  FabricPaths paths;
  paths.add("n", 1, 1, path(1, 400));
  paths.add("n", 2, 1, path(0, 400));
  paths.add("n", 3, 1, path(0, 200));
  EXPECT_EQ(routes(source, target, paths), "n 1>0 2>0 1>0 2>0");
  paths.add("n", 3, 1, path(0, 199));
  EXPECT_EQ(routes(source, target, paths), "n 1>0 1>0 1>0 1>0");
}

TEST(NetRoute, BothDirectionsUseTheSameNetwork) {
  const NetOffers a = {net("x", 2), net("fast", 2), net("slow", 1)};
  const NetOffers b = {net("slow", 1), net("y", 3), net("fast", 4)};
  for (uint32_t channel = 0; channel < 8; ++channel) {
    const auto there = choose_route(a, b, {}, channel).value();
    const auto back = choose_route(b, a, {}, channel).value();
    EXPECT_EQ(a[there.source_net].name, b[back.source_net].name);
    EXPECT_EQ(there.source_device, back.target_device);
    EXPECT_EQ(there.target_device, back.source_device);
  }
}

// ---- as bytes ----

TEST(NetOffers, SurviveTheWire) {
  const NetOffers offers = {
      {"Socket", {device("eth0"), {"eth1", ~uint64_t{0} - 1, 3, 4, true, false}}},
      net("none", 0),
      net("x", 64)};
  EXPECT_EQ(decode_offers(encode_offers(offers)).value(), offers);
  EXPECT_EQ(decode_offers(encode_offers({})).value(), NetOffers{});
}

TEST(NetOffers, DamagedBytesAreAnErrorAndNeverMore) {
  const std::string good = encode_offers({{"n", {fabric("a", 7), rail("b", 1)}}});
  for (size_t size = 0; size < good.size(); ++size) {
    EXPECT_TRUE(decode_offers(good.substr(0, size)).has_error()) << size;
  }
  for (size_t at = 0; at < good.size(); ++at) {
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ 0x15);
    (void)decode_offers(bad);  // any bytes must be read within their bounds
  }
  EXPECT_TRUE(decode_offers(encode_offers({net("n", 65)})).has_error());
  EXPECT_TRUE(decode_offers(encode_offers(NetOffers(17, net("n", 1)))).has_error());
  EXPECT_THAT(decode_offers("x").error().message(), HasSubstr(""));
}

TEST(FabricPaths, SurviveTheWire) {
  FabricPaths paths;
  paths.add("Net", 1, 2, path(3, 400, std::chrono::nanoseconds(5)));
  NetPath none;
  none.connected = false;
  paths.add("Net", 2, 1, none);
  FabricPaths read;
  ASSERT_TRUE(read.decode(paths.encode()).has_value());
  EXPECT_EQ(read.find("net", 1, 2).level, 3u);
  EXPECT_EQ(read.find("NET", 1, 2).bandwidth_mbit_per_s, 400u);
  EXPECT_EQ(read.find("net", 1, 2).latency, std::chrono::nanoseconds(5));
  EXPECT_FALSE(read.find("net", 2, 1).connected);
  EXPECT_TRUE(read.find("net", 1, std::nullopt).connected);
  EXPECT_TRUE(read.find("net", 9, 9).connected);
  const std::string good = paths.encode();
  EXPECT_TRUE(read.decode(good.substr(0, good.size() - 3)).has_error());
}

TEST(NetRoute, TravelsApartWhenEitherEndMovesGpuMemory) {
  NetOffers plain = {net("x", 1)};
  NetOffers reads = plain;
  reads[0].devices[0].reads_gpu = true;
  NetOffers writes = plain;
  writes[0].devices[0].writes_gpu = true;
  const NetRoute route;
  EXPECT_FALSE(travels_apart(route, plain, plain));
  EXPECT_TRUE(travels_apart(route, reads, plain));
  EXPECT_TRUE(travels_apart(route, plain, writes));
  EXPECT_FALSE(travels_apart(route, writes, reads)) << "the other direction's";
  EXPECT_EQ(describe_route(route, plain, writes), describe_route(route, plain, plain) + " GDR");
}

TEST(NetRoute, AfterTheFirstComeThoseThatShareNoDeviceWithIt) {
  const NetOffers offers = {net("x", 2)};
  const auto routes = list_routes(offers, offers, {}, 0);
  ASSERT_EQ(routes.size(), 4U);
  const NetRoute first = *choose_route(offers, offers, {}, 0);
  EXPECT_EQ(routes[0], first);
  EXPECT_NE(routes[1].source_device, first.source_device);
  EXPECT_NE(routes[1].target_device, first.target_device);
}

TEST(NetOffers, AreDescribedForUsers) {
  EXPECT_EQ(describe_offers({}), "none");
  EXPECT_EQ(describe_offers({net("A", 2), net("B", 1)}), "A (d0, d1), B (d0)");
  EXPECT_EQ(describe_route({1, 0, 0, 1}, {net("A", 1), net("B", 1)}, {net("B", 2)}),
            "B 0 (d0) > 1 (d1)");
}

std::string bytes_of(const std::vector<std::string>& words) {
  ByteWriter writer;
  for (const std::string& word : words) {
    writer.put_text<uint32_t>(word);
  }
  return writer.take();
}

/// Whether `words`, with the one at `at` replaced, are taken.
template <class Decode>
bool is_taken(std::vector<std::string> words, size_t at, const std::string& word, Decode decode) {
  words[at] = word;
  return decode(bytes_of(words)).has_value();
}

TEST(NetOffers, NumbersAndNamesHaveBounds) {
  const std::vector<std::string> words = {"1", "n", "1", "d", "-", "-", "-", "100", "0", "0"};
  ASSERT_TRUE(decode_offers(bytes_of(words)).has_value());
  const auto with = [&](size_t at, const std::string& word) {
    return is_taken(words, at, word, decode_offers);
  };
  for (const size_t name : {1U, 3U}) {
    EXPECT_TRUE(with(name, std::string(256, 'n')));
    EXPECT_FALSE(with(name, std::string(257, 'n')));
  }
  EXPECT_TRUE(with(4, "18446744073709551615"));
  EXPECT_FALSE(with(4, "18446744073709551616"));
  for (const size_t id : {5U, 6U}) {
    EXPECT_TRUE(with(id, "4294967295"));
    EXPECT_FALSE(with(id, "4294967296"));
  }
  EXPECT_TRUE(with(7, fmt::format("{}", PLEXUS_NET_MESSAGE_BYTES_MAX)));
  EXPECT_FALSE(with(7, fmt::format("{}", PLEXUS_NET_MESSAGE_BYTES_MAX + 1)));
  for (const size_t flag : {8U, 9U}) {
    EXPECT_TRUE(with(flag, "1"));
    EXPECT_FALSE(with(flag, "2"));
    EXPECT_FALSE(with(flag, "-")) << "it is not unknown";
  }
  for (const char* const none : {"", "x", "1x", " 1", "-1"}) {
    EXPECT_FALSE(with(5, none)) << none;
  }
  std::vector<std::string> more = words;
  more.emplace_back("1");
  EXPECT_TRUE(decode_offers(bytes_of(more)).has_error());
  EXPECT_TRUE(decode_offers(encode_offers(NetOffers(16, net("n", 1)))).has_value());
}

TEST(FabricPaths, NumbersHaveBoundsAndWhatIsBadAddsNothing) {
  const std::vector<std::string> words = {"n", "1", "2", "1", "-", "-", "-"};
  const auto decode = [](const std::string& bytes) { return FabricPaths().decode(bytes); };
  const auto with = [&](size_t at, const std::string& word) {
    return is_taken(words, at, word, decode);
  };
  EXPECT_TRUE(with(0, "n"));
  EXPECT_FALSE(with(1, "-"));
  EXPECT_FALSE(with(2, "-"));
  EXPECT_TRUE(with(3, "0"));
  EXPECT_FALSE(with(3, "2"));
  EXPECT_TRUE(with(4, "4294967295"));
  EXPECT_FALSE(with(4, "4294967296"));
  EXPECT_TRUE(with(5, "18446744073709551615"));
  EXPECT_TRUE(with(6, "9223372036854775807"));
  EXPECT_FALSE(with(6, "9223372036854775808"));
  FabricPaths paths;
  EXPECT_TRUE(paths.decode(bytes_of({"n", "1", "2", "0", "-", "-", "bad"})).has_error());
  EXPECT_TRUE(paths.find("n", 1, 2).connected);
}

TEST(NetRoute, AlternativesAreInTheOrderOfWhatTheyShareAndAreFew) {
  const NetOffers offers = {net("x", 2), net("slow", 1)};
  const std::vector<NetRoute> expected = {
      {0, 0, 0, 0}, {0, 0, 1, 1}, {1, 1, 0, 0}, {0, 0, 0, 1}, {0, 0, 1, 0}};
  EXPECT_EQ(list_routes(offers, offers, {}, 0), expected);
  EXPECT_EQ(list_routes({net("x", 1)}, {net("y", 1)}, {}, 0), std::vector<NetRoute>());
  const NetOffers many = {net("x", 4)};
  EXPECT_EQ(list_routes(many, many, {}, 3).size(), 8U);
  EXPECT_EQ(list_routes(many, many, {}, 3).front(), (NetRoute{0, 0, 3, 3}));
}

}  // namespace
}  // namespace plexus
