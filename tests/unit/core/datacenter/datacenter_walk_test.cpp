// SPDX-License-Identifier: Apache-2.0
// Walks and trees over datacenters, from their paths alone.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/datacenter/datacenter_map.hpp"

namespace plexus {
namespace {

using Numbers = std::vector<int>;
constexpr int kNone = -1;  // no path

/// `cost_of(from, to)`: kNone: they are not connected.
std::vector<DatacenterPath> paths_of(int count, const std::function<int(int, int)>& cost_of) {
  std::vector<DatacenterPath> paths;
  for (int from = 0; from < count; ++from) {
    for (int to = 0; to < count; ++to) {
      DatacenterPath path;
      const int cost = from == to ? 0 : cost_of(from, to);
      path.connected = cost != kNone;
      if (from != to && cost != kNone) {
        path.cost = static_cast<uint64_t>(cost);
      }
      paths.push_back(path);
    }
  }
  return paths;
}

Numbers walk(int count, const std::vector<DatacenterPath>& paths) {
  std::vector<std::string> names;
  for (int dc = 0; dc < count; ++dc) {
    names.push_back("dc" + std::to_string(dc));
  }
  auto found = find_walk(paths, names);
  EXPECT_TRUE(found.has_value()) << found.error().message();
  return found.has_value() ? std::move(found).value() : Numbers{};
}
Numbers walk(int count, const std::function<int(int, int)>& cost_of) {
  return walk(count, paths_of(count, cost_of));
}

TEST(DatacenterWalk, OfOneIsThatOne) {
  EXPECT_EQ(walk(1, [](int, int) { return 1; }), Numbers({0}));
}

TEST(DatacenterWalk, OfFewIsTheBestOfAllOrders) {
  EXPECT_EQ(walk(2, [](int, int) { return 3; }), Numbers({0, 1}));
  EXPECT_EQ(walk(4, [](int, int) { return 3; }), Numbers({0, 1, 2, 3}));
  const auto ring = [](int a, int b) {  // 0 2 1 3 are neighbours
    return (a < 2) == (b < 2) ? 10 : 1;
  };
  EXPECT_EQ(walk(4, ring), Numbers({0, 2, 1, 3}));
  // Where going to the nearest first costs 1 + 1 + 1 + 100.
  const auto trap = [](int a, int b) {
    const int sum = a + b;
    return sum == 3 && a * b == 0 ? 100 : std::abs(a - b) == 1 ? 1 : 2;
  };
  EXPECT_EQ(walk(4, trap), Numbers({0, 1, 3, 2}));
}

TEST(DatacenterWalk, OfFewIsBetterThanExchangesOfTwoLinksMakeIt) {
  const std::vector<Numbers> costs = {
      {0, 3, 3, 2, 2}, {3, 0, 2, 2, 2}, {3, 2, 0, 2, 1}, {2, 2, 2, 0, 2}, {2, 2, 1, 2, 0}};
  EXPECT_EQ(
      walk(5, [&](int a, int b) { return costs[static_cast<size_t>(a)][static_cast<size_t>(b)]; }),
      Numbers({0, 3, 1, 2, 4}));
}

/// On a circle whose places are 0, 2, 4, ... 1, 3, ... in the order of the datacenters.
int on_circle(int count, int a, int b) {
  const int apart = std::abs(a * 2 % count - b * 2 % count);
  return std::min(apart, count - apart);
}

TEST(DatacenterWalk, OfACircleGoesRoundIt) {
  EXPECT_EQ(walk(7, [](int a, int b) { return on_circle(7, a, b); }),
            Numbers({0, 3, 6, 2, 5, 1, 4}));
  EXPECT_EQ(walk(9, [](int a, int b) { return on_circle(9, a, b); }),
            Numbers({0, 4, 8, 3, 7, 2, 6, 1, 5}));
}

TEST(DatacenterWalk, OfManyIsNotLeftAsTheNearestNeighboursMakeIt) {
  const Numbers places = {0, 1, -2, 4, -8, 16, -32, 64, -128};  // each to the other side
  const auto cost = [&](int a, int b) {
    return std::abs(places[static_cast<size_t>(a)] - places[static_cast<size_t>(b)]);
  };
  const Numbers found = walk(9, cost);
  int sum = 0;
  for (size_t at = 0; at < found.size(); ++at) {
    sum += cost(found[at], found[(at + 1) % found.size()]);
  }
  EXPECT_EQ(sum, 2 * (64 + 128));
  EXPECT_THAT(found, ::testing::UnorderedElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8));
}

TEST(DatacenterWalk, OfManyIsExchangedUntilNothingIsBetter) {
  const Numbers x = {30, 30, 1, 2, 26, 23, 21, 9, 19};
  const Numbers y = {27, 27, 2, 11, 5, 25, 27, 8, 6};
  const auto cost = [&](int a, int b) {
    const auto from = static_cast<size_t>(a);
    const auto to = static_cast<size_t>(b);
    return std::abs(x[from] - x[to]) + std::abs(y[from] - y[to]);
  };
  EXPECT_EQ(walk(9, cost), Numbers({0, 1, 4, 2, 3, 7, 8, 5, 6})) << "one pass leaves 0 1 5 2 ...";
}

TEST(DatacenterWalk, CountsByTheLatencyWhereNotAllPathsHaveACost) {
  auto paths = paths_of(4, [](int a, int b) { return (a < 2) == (b < 2) ? 10 : 1; });
  for (size_t at = 0; at < paths.size(); ++at) {  // 0 1 3 2 are neighbours
    paths[at].latency_ns = at / 4 + at % 4 == 3 ? 9'000'000 : 1'000'000;
  }
  EXPECT_EQ(walk(4, paths), Numbers({0, 2, 1, 3})) << "by cost";
  paths[1].cost.reset();
  EXPECT_EQ(walk(4, paths), Numbers({0, 1, 3, 2})) << "by latency";
  paths[2].latency_ns.reset();
  EXPECT_EQ(walk(4, paths), Numbers({0, 1, 2, 3})) << "by the number of crossings";
  paths[1].cost = 10;
  paths[1].connected = false;
  EXPECT_EQ(walk(4, paths), Numbers({0, 2, 1, 3})) << "a path that is not there needs no cost";
}

TEST(DatacenterWalk, GoesThereAndBackWhereNoRoundExists) {
  EXPECT_EQ(walk(3, [](int a, int b) { return a == 2 || b == 2 ? 1 : kNone; }),
            Numbers({0, 2, 1, 2}));
  EXPECT_EQ(walk(4, [](int a, int b) { return a == 1 || b == 1 ? 1 : kNone; }),
            Numbers({0, 1, 2, 1, 3, 1}));
  // 2 is the middle of a line whose ends are 1 and 4, 0 is beside it
  const auto tree = [](int a, int b) {
    const int low = std::min(a, b);
    const int high = std::max(a, b);
    return (low == 0 && high == 3) || (low == 2 && high == 3) || (low == 1 && high == 2) ||
                   (low == 2 && high == 4)
               ? 1
               : kNone;
  };
  EXPECT_EQ(walk(5, tree), Numbers({0, 3, 2, 1, 2, 4, 2, 3}));
}

TEST(DatacenterWalk, SaysWhatIsNotConnected) {
  const auto paths = paths_of(4, [](int a, int b) { return (a < 2) == (b < 2) ? 1 : kNone; });
  const std::vector<std::string> names = {"here", "near", "far", "away"};
  const auto found = find_walk(paths, names);
  ASSERT_TRUE(found.has_error());
  EXPECT_EQ(found.error().message(),
            "there is no path from datacenter 'here' to 'far': add a link line to "
            "PLEXUS_FABRIC_FILE");
}

TEST(DatacenterTree, HasItsRootWhereTheFarthestIsNearest) {
  const auto line = [](const Numbers& costs) {
    const int count = static_cast<int>(costs.size()) + 1;
    return find_tree(
        paths_of(count,
                 [&](int a, int b) {
                   return std::abs(a - b) == 1 ? costs[static_cast<size_t>(std::min(a, b))] : kNone;
                 }),
        count);
  };
  EXPECT_EQ(line({1, 1, 5}), Numbers({1, 2, -1, 2}));
  EXPECT_EQ(line({5, 1, 1}), Numbers({1, -1, 1, 2}));
  EXPECT_EQ(line({1, 1}), Numbers({1, -1, 1}));
  EXPECT_EQ(line({1}), Numbers({-1, 0})) << "the first of equal ones";
}

TEST(DatacenterTree, TakesTheCheapestLinks) {
  const auto cost = [](int a, int b) { return a + b == 3 ? 1 : 5 + std::min(a, b); };
  // 0-3 and 1-2 first, then the cheapest between them: 0-1.
  EXPECT_EQ(find_tree(paths_of(4, cost), 4), Numbers({-1, 0, 1, 0}));
}

TEST(DatacenterTree, OfEqualLinksIsAPath) {
  EXPECT_EQ(find_tree(1), Numbers({-1}));
  EXPECT_EQ(find_tree(2), Numbers({-1, 0}));
  for (const int count : {3, 5, 6}) {
    std::vector<int> below(static_cast<size_t>(count), 0);
    const Numbers above = find_tree(count);
    for (const int to : above) {
      if (to >= 0) {
        ++below[static_cast<size_t>(to)];
      }
    }
    const auto root = std::find(above.begin(), above.end(), -1) - above.begin();
    for (int dc = 0; dc < count; ++dc) {
      EXPECT_LE(below[static_cast<size_t>(dc)], dc == root ? 2 : 1) << dc << " of " << count;
    }
  }
}

}  // namespace
}  // namespace plexus
