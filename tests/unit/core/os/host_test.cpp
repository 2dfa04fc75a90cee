// SPDX-License-Identifier: Apache-2.0
#include "core/os/host.hpp"

#include <filesystem>
#include <fstream>
#include <sched.h>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

#include <gtest/gtest.h>

namespace plexus {
namespace {

TEST(Host, IsTheSameForEveryCallAndNamesTheHost) {
  const HostIdentity one = host_identity("");
  const HostIdentity two = host_identity("");
  EXPECT_EQ(one.hash, two.hash);
  EXPECT_EQ(one.pid_namespace, two.pid_namespace);
  EXPECT_NE(one.pid_namespace, 0U);
  EXPECT_FALSE(one.name.empty());
}

TEST(Host, FollowsTheOverride) {
  EXPECT_EQ(host_identity("a").hash, host_identity("a").hash);
  EXPECT_NE(host_identity("a").hash, host_identity("b").hash);
  EXPECT_NE(host_identity("a").hash, host_identity("").hash);
}

TEST(Host, HasOneIdForTheProcessAndAtLeastOneCore) {
  EXPECT_EQ(process_id(), process_id());
  EXPECT_GE(cores_available(), 1);
  const uint64_t all = core_set_hash();
  std::thread([&] {
    const int cores = cores_available();
    EXPECT_EQ(core_set_hash(), all);
    EXPECT_TRUE(bind_to_core(cores + 1)) << "counts round";
    EXPECT_EQ(cores_available(), 1);
    EXPECT_EQ(core_set_hash() == all, cores == 1);
  }).join();
  EXPECT_EQ(core_set_hash(), all) << "only the calling thread is bound";
}

/// A sysfs tree with these cores on its NUMA nodes.
class FakeNumaNodes {
 public:
  FakeNumaNodes(const std::string& online, const std::vector<std::string>& cores)
      : root_(std::filesystem::temp_directory_path() /
              ("plexus-numa-" + std::to_string(getpid()))) {
    const auto nodes = root_ / "devices/system/node";
    std::filesystem::create_directories(nodes);
    std::ofstream(nodes / "online") << online << "\n";
    for (size_t node = 0; node < cores.size(); ++node) {
      std::filesystem::create_directories(nodes / ("node" + std::to_string(node)));
      std::ofstream(nodes / ("node" + std::to_string(node)) / "cpulist") << cores[node] << "\n";
    }
  }
  FakeNumaNodes(const FakeNumaNodes&) = delete;
  FakeNumaNodes& operator=(const FakeNumaNodes&) = delete;
  ~FakeNumaNodes() { std::filesystem::remove_all(root_); }
  [[nodiscard]] std::string path() const { return root_.string(); }

 private:
  std::filesystem::path root_;
};

TEST(BoundNumaNode, IsTheOneThatHasAllCoresOfTheThread) {
  EXPECT_EQ(bound_numa_node(FakeNumaNodes("0-1", {"1023", "0-1022"}).path()), 1);
  EXPECT_EQ(bound_numa_node(FakeNumaNodes("0-2", {"", "0-7,8,9-1023", ""}).path()), 1);
}

TEST(BoundNumaNode, IsNoneWhenTheCoresAreOnSeveral) {
  cpu_set_t mine;
  ASSERT_EQ(sched_getaffinity(0, sizeof(mine), &mine), 0);
  if (CPU_COUNT(&mine) < 2) {
    GTEST_SKIP() << "this thread may run on one core only";
  }
  int first = 0;
  while (CPU_ISSET(first, &mine) == 0) {
    ++first;
  }
  const std::string rest = std::to_string(first + 1) + "-1023";
  EXPECT_EQ(bound_numa_node(FakeNumaNodes("0-1", {std::to_string(first), rest}).path()), -1);
}

TEST(BoundNumaNode, IsNoneWhenTheKernelDoesNotSay) {
  EXPECT_EQ(bound_numa_node("/nonexistent"), -1);
  EXPECT_EQ(bound_numa_node(FakeNumaNodes("what", {"0-1023"}).path()), -1);
}

TEST(NumaNodeOfPci, IsWhatTheKernelSays) {
  const auto root =
      std::filesystem::temp_directory_path() / ("plexus_pci_" + std::to_string(getpid()));
  const auto device = root / "bus/pci/devices/0000:3b:00.0";
  std::filesystem::create_directories(device);
  std::ofstream(device / "numa_node") << "3\n";
  EXPECT_EQ(numa_node_of_pci("0000:3b:00.0", root.string()), 3);
  EXPECT_EQ(numa_node_of_pci("0000:3c:00.0", root.string()), -1);
  std::filesystem::remove_all(root);
}

}  // namespace
}  // namespace plexus
