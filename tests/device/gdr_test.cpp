// SPDX-License-Identifier: Apache-2.0
// GPUDirect: slots of a network in GPU memory, with a NIC (net_gpu.cpp) whose received data becomes
// visible only by a flush. The NIC can only access the software device's memory.
#include <filesystem>
#include <fstream>
#include <unistd.h>

#include "tests/device/processes.hpp"
#include "tests/device/rank.hpp"

namespace plexus::testing_device {
namespace {

using testing::Each;
using testing::HasSubstr;
using testing::Not;

Environment through_card(Environment more) {
  Environment all = {
      {"NCCL_SHM_DISABLE", "1"},
      {"NCCL_P2P_DISABLE", "1"},
      {"NCCL_NET", "GPU"},
      {"NCCL_NET_PLUGIN", setting("PLEXUS_TEST_EXAMPLE_DIR") + "/libplexus-net-gpu.so"},
      {"NCCL_NET_GDR_LEVEL", "SYS"},
      {"NCCL_NET_FORCE_FLUSH", "1"}};
  all.insert(all.end(), more.begin(), more.end());  // the last value of a variable applies
  return all;
}

class DeviceGdr : public testing::Test {
 protected:
  void SetUp() override {
    if (!machine().is_software()) {
      GTEST_SKIP() << "its card is made for the software device";
    }
  }
};

TEST_F(DeviceGdr, CarriesByDmabufWhereTheNetworkTakesIt) {
  const auto logs = run_processes("all_reduce", {0, 1, 0}, through_card({}));
  EXPECT_THAT(logs, Each(HasSubstr("GDR for sends and receives, flushed")));
  EXPECT_THAT(logs, Each(HasSubstr("(GDR, by dma-buf)")));
  EXPECT_THAT(logs, Each(HasSubstr("net-gpu: 0 by address")));
  EXPECT_THAT(logs, Each(HasSubstr("sends yes, flushes yes")));
}

TEST_F(DeviceGdr, CarriesByAddressWhereTheNetworkTakesNoDmabuf) {
  const auto logs =
      run_processes("all_reduce", {0, 1}, through_card({{"PLEXUS_TEST_GPU_KINDS", "cuda"}}));
  EXPECT_THAT(logs, Each(HasSubstr("(GDR, registered as CUDA memory)")));
  EXPECT_THAT(logs, Each(HasSubstr(" 0 by dma-buf, sends yes, flushes yes")));
}

TEST_F(DeviceGdr, CarriesByAddressWhenDmabufsAreSwitchedOff) {
  const auto logs =
      run_processes("all_reduce", {0, 1}, through_card({{"NCCL_DMABUF_ENABLE", "0"}}));
  EXPECT_THAT(logs, Each(HasSubstr("(GDR, registered as CUDA memory)")));
}

TEST_F(DeviceGdr, MeetsHostRanks) {
  const auto logs = run_processes("all_reduce", {0, -1, 1}, through_card({}));
  EXPECT_THAT(logs[0], HasSubstr("(GDR, by dma-buf)"));
  EXPECT_THAT(logs[1], Not(HasSubstr("(GDR,")));
  EXPECT_THAT(logs[1], HasSubstr(" GDR"));  // the route: headers travel apart
}

TEST_F(DeviceGdr, SendsFromHostMemoryWhenCardsMayNotRead) {
  const auto logs = run_processes("all_reduce", {0, 1}, through_card({{"NCCL_NET_GDR_READ", "0"}}));
  EXPECT_THAT(logs, Each(HasSubstr("GDR for receives, flushed")));
  EXPECT_THAT(logs, Each(HasSubstr("sends no, flushes yes")));
}

TEST_F(DeviceGdr, IsLeftOutForFarCardsAndSaysSo) {
  const auto logs = run_processes("all_reduce", {0, 1}, through_card({{"NCCL_NET_GDR_LEVEL", ""}}));
  EXPECT_THAT(logs, Each(HasSubstr("no GDR, the path between GPU and NIC is ")));
  EXPECT_THAT(logs, Each(HasSubstr("net-gpu: 0 by address, 0 by dma-buf, sends no, flushes no")));
}

// The NIC is on the PCIe switch of cuda:0; cuda:1 is on another switch, which is too far.
TEST_F(DeviceGdr, DependsOnTheDistanceOfGpuAndCard) {
  const auto file = std::filesystem::temp_directory_path() /
                    fmt::format("plexus_device_{}_topology.xml", getpid());
  std::ofstream(file) << R"(<system version="1">
  <cpu numaid="0" arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="143">
    <pci busid="0000:10:00.0" class="0x060400">
      <pci busid="0000:01:00.0" class="0x030200"><gpu dev="0" sm="90" gdr="1"/></pci>
      <pci busid="0000:11:00.0" class="0x020000">
        <nic><net name="lo" dev="0" speed="10000" port="0" gdr="1"/></nic>
      </pci>
    </pci>
    <pci busid="0000:20:00.0" class="0x060400">
      <pci busid="0000:02:00.0" class="0x030200"><gpu dev="1" sm="90" gdr="1"/></pci>
    </pci>
  </cpu>
</system>
)";
  const Environment near = {{"NCCL_TOPO_FILE", file.string()},
                            {"NCCL_SOCKET_IFNAME", "=lo"},
                            {"NCCL_NET_GDR_LEVEL", "PXB"}};
  const auto logs = run_processes("all_reduce", {0, 1}, through_card(near));
  EXPECT_THAT(logs[0], HasSubstr("GDR for sends and receives"));
  EXPECT_THAT(logs[1], HasSubstr("no GDR, the path between GPU and NIC is PHB"));
  EXPECT_THAT(logs[1], HasSubstr("sends no, flushes no"));
  std::filesystem::remove(file);
}

TEST_F(DeviceGdr, FallsBackToHostMemoryWhenTheNetworkRefuses) {
  const auto logs =
      run_processes("all_reduce", {0, 1}, through_card({{"PLEXUS_TEST_GPU_REFUSES", "1"}}));
  EXPECT_THAT(logs, Each(HasSubstr("no GDR with rank ")));
  EXPECT_THAT(logs, Each(HasSubstr("net-gpu: no GPU memory today")));
  for (const std::string& log : logs) {  // one line, however many connections
    EXPECT_EQ(log.find("no GDR with"), log.rfind("no GDR with"));
  }
  EXPECT_THAT(logs, Each(HasSubstr("sends no, flushes no")));
}

TEST_F(DeviceGdr, FlushesForACardThatAsksForIt) {
  const auto logs = run_processes(
      "all_reduce", {0, 1},
      through_card({{"NCCL_NET_FORCE_FLUSH", "0"}, {"PLEXUS_TEST_GPU_FORCE_FLUSH", "1"}}));
  EXPECT_THAT(logs, Each(HasSubstr("flushes yes")));
}

// The precondition of the tests above: with this NIC a missing flush gives wrong data.
TEST_F(DeviceGdr, WithoutAFlushWhatArrivedIsNotThere) {
  const auto logs =
      run_processes("all_reduce", {0, 1}, through_card({{"NCCL_NET_FORCE_FLUSH", "0"}}), kWrongSum);
  EXPECT_THAT(logs, Each(HasSubstr("flushes no")));
}

TEST_F(DeviceGdr, KeepsHeadersAndPayloadsTogetherWhateverCompletesFirst) {
  const std::string folder = setting("PLEXUS_TEST_LIB_DIR");
  const std::string card = setting("PLEXUS_TEST_EXAMPLE_DIR") + "/libplexus-net-gpu.so";
  const auto logs = run_processes(
      "all_reduce", {0, 1, -1},
      through_card({{"NCCL_NET", ""},
                    {"NCCL_NET_PLUGIN", folder + "/libplexus-net-chaos.so"},
                    {"PLEXUS_CHAOS_NET", card},
                    {"PLEXUS_CHAOS_SCRIPT", "*: again=20% reorder=8; send: jitter=200us"}}));
  EXPECT_THAT(logs[0], HasSubstr("sends yes, flushes yes"));
}

TEST_F(DeviceGdr, ReplaysGraphs) { run_processes("graph", {0, 1}, through_card({})); }

TEST_F(DeviceGdr, SeesADeath) { run_processes("death", {0, 1}, through_card({})); }

}  // namespace
}  // namespace plexus::testing_device
