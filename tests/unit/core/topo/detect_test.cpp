// SPDX-License-Identifier: Apache-2.0
// Detection reads the machine that runs the tests, so the tests only check what holds for every
// machine.
#include "core/topo/detect.hpp"

#include <filesystem>
#include <fstream>
#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/topo/cluster.hpp"
#include "core/topo/machine_xml.hpp"

namespace plexus::testing {
namespace {

TEST(Detect, ThisMachineIsACompleteDescription) {
  DetectRequest request;
  request.ranks = {{.rank = 0}, {.rank = 1}, {.rank = 2}};
  request.nets.resize(2);
  request.nets[0].name = "without PCI";
  request.nets[1].name = "unknown to hwloc";
  request.nets[1].pci_path = "/nowhere/0000:ff:1f.7";
  const Result<XmlElement> machine = detect_machine(request);
  ASSERT_TRUE(machine) << machine.error().message();
  const Result<XmlElement> again = parse_machine(format_xml(machine.value()));
  ASSERT_TRUE(again) << again.error().message();
  EXPECT_EQ(machine.value(), again.value());
  const Result<System> system = build_system(machine.value());
  ASSERT_TRUE(system) << system.error().message();
  EXPECT_GE(system.value().count(NodeType::kCpu), 1);
  EXPECT_EQ(system.value().count(NodeType::kGpu), 3);
  EXPECT_EQ(system.value().count(NodeType::kNet), 2);
  ClusterRequest cluster;
  cluster.machines = 4;
  const Result<ClusterChannels> planned = plan_cluster(machine.value(), cluster);
  ASSERT_TRUE(planned) << planned.error().message();
  EXPECT_EQ(planned.value().joined.ranks, 12);
}

TEST(Detect, RankGoesToItsNumaNode) {
  DetectRequest request;
  request.ranks = {{.rank = 5, .numa = 0}};
  const Result<XmlElement> machine = detect_machine(request);
  ASSERT_TRUE(machine) << machine.error().message();
  for (const XmlElement& cpu : machine.value().children) {
    EXPECT_EQ(cpu.find_child("host") != nullptr, *cpu.find("numaid") == "0");
  }
}

class FakeSysfs : public ::testing::Test {
 protected:
  void SetUp() override {
    root_ = std::filesystem::temp_directory_path() / ("plexus-sysfs-" + std::to_string(getpid()));
    std::filesystem::create_directories(root_ / "class/net");
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  void add(const std::string& name, const std::string& speed, const std::string& state, bool pci) {
    const std::filesystem::path folder = root_ / "class/net" / name;
    std::filesystem::create_directories(folder);
    std::ofstream(folder / "speed") << speed << "\n";
    std::ofstream(folder / "operstate") << state << "\n";
    if (pci) {
      std::filesystem::create_directories(folder / "device");
    }
  }

  std::filesystem::path root_;
};

TEST_F(FakeSysfs, PhysicalInterfacesHideVirtualOnes) {
  add("lo", "0", "unknown", false);
  add("veth0", "10000", "up", false);
  EXPECT_EQ(network_interfaces(root_.string()).size(), 1U);
  add("eth1", "100000", "up", true);
  add("eth0", "-1", "up", true);
  add("eth2", "100000", "down", true);
  const std::vector<NetPort> ports = network_interfaces(root_.string());
  ASSERT_EQ(ports.size(), 2U);
  EXPECT_EQ(ports[0].name, "eth0");
  EXPECT_EQ(ports[0].speed_mbit_per_s, 10'000);
  EXPECT_EQ(ports[1].speed_mbit_per_s, 100'000);
}

TEST_F(FakeSysfs, NoSysfsMeansNoInterfaces) {
  EXPECT_TRUE(network_interfaces("/nonexistent").empty());
}

}  // namespace
}  // namespace plexus::testing
