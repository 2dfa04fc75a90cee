// SPDX-License-Identifier: Apache-2.0
#include "core/control/process_table.hpp"

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace plexus {
namespace {

ProcessEntry entry(uint64_t id, uint64_t host, std::vector<uint32_t> ranks) {
  ProcessEntry made{.process = id,
                    .host_key = host,
                    .pid = static_cast<int32_t>(id),
                    .host = "node" + std::to_string(host),
                    .ranks = std::move(ranks)};
  SocketAddress::parse("10.0.0." + std::to_string(id) + ":99").value().pack(made.address.data());
  return made;
}

TEST(ProcessTable, OrdersHostsAndTheirProcessesByLowestRank) {
  const auto table = ProcessTable::make({entry(1, 5, {4}), entry(2, 6, {1, 0}), entry(3, 5, {2}),
                                         entry(4, 6, {3})})
                         .value();
  ASSERT_EQ(table.nprocesses(), 4U);
  EXPECT_EQ(table.id_of(0), 2U);
  EXPECT_EQ(table.id_of(1), 4U);
  EXPECT_EQ(table.id_of(2), 3U);
  EXPECT_EQ(table.host_of(1), table.host_of(0));
  EXPECT_EQ(table.process_of(4), 3U);
  EXPECT_EQ(table.name_of(2), "rank 2 (node5:3)");
  EXPECT_EQ(table.name_of(5), "rank 5") << "there are 5";
  EXPECT_EQ(table.find(4), 1U);
  EXPECT_EQ(table.find(9), std::nullopt);
}

TEST(ProcessTable, SurvivesItsEncoding) {
  const auto table =
      ProcessTable::make({entry(1, 5, {4}), entry(2, 6, {1, 0}), entry(3, 5, {2, 3})});
  const std::string bytes = table.value().encode();
  const auto decoded = ProcessTable::decode(bytes);
  ASSERT_TRUE(decoded.has_value());
  EXPECT_EQ(decoded.value().encode(), bytes);
  EXPECT_EQ(decoded.value().address_of(0).value().to_string(), "10.0.0.2:99");
  EXPECT_LE(bytes.size() / 3, 48U) << "bytes per process";
  for (size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_TRUE(ProcessTable::decode(bytes.substr(0, size)).has_error()) << size;
  }
}

TEST(ProcessTable, RefusesRanksThatAreMissingOrDouble) {
  EXPECT_TRUE(ProcessTable::make({entry(1, 1, {0, 2})}).has_error());
  EXPECT_TRUE(ProcessTable::make({entry(1, 1, {0}), entry(2, 1, {0})}).has_error());
  EXPECT_TRUE(ProcessTable::make({entry(1, 1, {})}).has_error());
}

TEST(ProcessTable, KeepsTheFirst64BytesOfAHostsName) {
  ProcessEntry long_name = entry(1, 5, {0});
  long_name.host = std::string(70, 'h');
  const auto table = ProcessTable::make({long_name}).value();
  EXPECT_EQ(table.process_name_of(0), std::string(64, 'h') + ":1");
  EXPECT_EQ(ProcessTable::decode(table.encode()).value().name_of(0),
            "rank 0 (" + std::string(64, 'h') + ":1)");
}

TEST(ControlTree, HasSixteenChildrenOnAHostAndAmongTheLeaders) {
  const auto tree = [](uint32_t nprocesses, uint32_t per_host) {
    std::vector<ProcessEntry> entries;
    for (uint32_t i = 0; i < nprocesses; ++i) {
      entries.push_back({.process = i, .host_key = i / per_host, .ranks = {i}});
    }
    const auto table = ProcessTable::make(std::move(entries)).value();
    return ControlTree(table, all_ranks(nprocesses));
  };
  for (const uint32_t per_host : {1U, 100U}) {
    const ControlTree hundred = tree(100, per_host);
    EXPECT_EQ(hundred.children(0).size(), 16U);
    EXPECT_EQ(hundred.children(1).front(), 17U);
    EXPECT_EQ(hundred.children(1).back(), 32U);
    EXPECT_EQ(hundred.parent(16), 0U);
    EXPECT_EQ(hundred.parent(17), 1U);
    EXPECT_EQ(hundred.parent(99), 6U);
    EXPECT_EQ(hundred.children(6), std::vector<uint32_t>({97, 98, 99}));
    EXPECT_TRUE(hundred.children(7).empty());
  }
  const ControlTree both = tree(6, 2);  // leaders 0, 2, 4
  EXPECT_EQ(both.children(0), std::vector<uint32_t>({2, 4, 1}));
  EXPECT_EQ(both.children(2), std::vector<uint32_t>({3}));
  EXPECT_EQ(both.parent(3), 2U);
  EXPECT_EQ(both.parent(4), 0U);
  EXPECT_EQ(both.position_of(5), 5U);
  EXPECT_EQ(both.position_of(6), std::nullopt);
}

/// Every position is the child of its parent, and the root's subtree is everything.
TEST(ControlTree, IsATree) {
  for (const uint32_t per_host : {1U, 3U, 40U}) {
    for (const uint32_t nprocesses : {1U, 2U, 17U, 18U, 300U}) {
      std::vector<ProcessEntry> entries;
      for (uint32_t i = 0; i < nprocesses; ++i) {
        entries.push_back({.process = i, .host_key = i / per_host, .ranks = {i}});
      }
      const auto table = ProcessTable::make(std::move(entries)).value();
      std::vector<uint32_t> some;
      for (uint32_t i = 0; i < nprocesses; i += per_host == 3 ? 2 : 1) {
        some.push_back(i);
      }
      const ControlTree tree(table, some);
      auto all = tree.subtree(0);
      std::sort(all.begin(), all.end());
      std::vector<uint32_t> expected(tree.size());
      std::iota(expected.begin(), expected.end(), 0U);
      EXPECT_EQ(all, expected);
      EXPECT_EQ(tree.parent(0), std::nullopt);
      for (uint32_t position = 1; position < tree.size(); ++position) {
        const uint32_t parent = tree.parent(position).value();
        EXPECT_LT(parent, position);
        const auto children = tree.children(parent);
        EXPECT_EQ(std::count(children.begin(), children.end(), position), 1);
        EXPECT_LE(children.size(), 2 * ControlTree::kFanOut);
      }
    }
  }
}

}  // namespace
}  // namespace plexus
