// SPDX-License-Identifier: Apache-2.0
// Situations in which another implementation with several networks in one topology fails. The
// comment above each test describes that implementation's bug; the numbers continue those in
// tests/unit/core/datacenter.
#include <set>
#include <string>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "core/topo/decisions.hpp"
#include "core/topo/machine_xml.hpp"
#include "core/topo/paths.hpp"
#include "core/topo/search.hpp"

namespace plexus::testing {
namespace {

System build(const std::string& body) {
  const auto machine = parse_machine("<system version=\"1\">\n" + body + "</system>");
  EXPECT_TRUE(machine) << (machine ? "" : machine.error().message());
  auto system = build_system(machine.value());
  EXPECT_TRUE(system) << (system ? "" : system.error().message());
  system.value().inter = true;
  compute_paths(system.value(), {});
  return std::move(system).value();
}

std::string cpu(int numa, uint64_t host, const std::string& inside) {
  return fmt::format(
      "<cpu numaid=\"{}\" host_hash=\"{:#x}\" arch=\"x86_64\" vendor=\"GenuineIntel\" "
      "familyid=\"6\" modelid=\"85\">{}</cpu>\n",
      numa, host, inside);
}

/// NICs without a PCI bus: `first` is the lowest of their device numbers.
std::string virtual_nic(int first, int ports) {
  std::string nets;
  for (int port = 0; port < ports; ++port) {
    nets += fmt::format("<net dev=\"{}\" port=\"{}\" rail=\"{}\" speed=\"100000\" gdr=\"0\"/>",
                        first + port, port, port);
  }
  return "<nic>" + nets + "</nic>";
}

std::set<int> neighbours(const System& system, NodeType type, int ordinal, NodeType wanted) {
  std::set<int> found;
  for (const Link& link : system.node(type, ordinal).links) {
    if (system.nodes[static_cast<size_t>(link.to)].type == wanted) {
      found.insert(system.nodes[static_cast<size_t>(link.to)].ordinal);
    }
  }
  return found;
}

/// B6: ids of NICs are sums without the NUMA node, so that NICs of two NUMA nodes, or of two hosts,
/// become one.
TEST(KnownBugs, B6NicsOfTwoNumaNodesStayTwo) {
  const System system = build(cpu(0, 1, virtual_nic(0, 1) + "<host rank=\"0\"/>") +
                              cpu(1, 1, virtual_nic(1, 1) + "<host rank=\"1\"/>"));
  ASSERT_EQ(system.count(NodeType::kNic), 2);
  for (int numa = 0; numa < 2; ++numa) {
    EXPECT_EQ(neighbours(system, NodeType::kCpu, numa, NodeType::kNic), std::set<int>{numa});
    EXPECT_EQ(neighbours(system, NodeType::kNic, numa, NodeType::kNet), std::set<int>{numa});
  }
}

TEST(KnownBugs, B6EqualNumbersOnTwoHostsOfOneSystemStayTwo) {
  const System system = build(cpu(0, 1, virtual_nic(0, 1) + "<host rank=\"0\"/>") +
                              cpu(0, 2, virtual_nic(0, 1) + "<host rank=\"1\"/>"));
  ASSERT_EQ(system.count(NodeType::kNet), 2);
  EXPECT_NE(system.node(NodeType::kNet, 0).host, system.node(NodeType::kNet, 1).host);
  EXPECT_NE(system.node(NodeType::kNet, 0).net.guid, system.node(NodeType::kNet, 1).net.guid);
}

/// B12: after ports of two fabrics were tried as one NIC, the scan continues at device 1, and
/// device 0 is lost.
TEST(KnownBugs, B12BothPortsOfTheFirstNicAreUsed) {
  const System system =
      build(cpu(0, 1, virtual_nic(0, 2) + "<host rank=\"0\"/><host rank=\"1\"/>"));
  ASSERT_EQ(system.count(NodeType::kNet), 2);
  EXPECT_EQ(system.node(NodeType::kNet, 0).net.device, 0);
  EXPECT_EQ(system.node(NodeType::kNet, 1).net.device, 1);
  std::set<int> used;
  for (const ChannelNets& nets : search_node(system, {}).ring.nets) {
    used.insert({nets.in, nets.out});
  }
  EXPECT_EQ(used, (std::set<int>{0, 1}));
}

}  // namespace
}  // namespace plexus::testing
