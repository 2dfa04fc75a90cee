// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/topo/fitted_times.hpp"

#include <cmath>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tools/cli/topo/machine_line.hpp"
#include "tools/cli/topo/predicted.hpp"

namespace plexus {
namespace {

using testing::HasSubstr;

FittedMachine machine(const std::string& text, int nodes = 1) {
  const MachineLine line = parse_machine_line(text).value();
  ClusterRequest request;
  request.machines = nodes;
  return describe_fitted(plan_cluster(describe_machine(line), request).value(), line.network);
}

double time_us(const FittedMachine& machine,
               FittedCall call,
               size_t bytes,
               Setup setup = Setup::kProcesses) {
  return fitted_time_us(fitted_costs(), machine, call, machine.choose(call, bytes), bytes, setup);
}

std::string way(const FittedMachine& machine, FittedCall call, size_t bytes) {
  const FittedChoice chosen = machine.choose(call, bytes);
  return std::string(name(chosen.algorithm)) + "/" + name(chosen.protocol);
}

TEST(MachineLine, IsGpusNicsAndWhatIsBetween) {
  const MachineLine line = parse_machine_line("4xgh200 4xslingshot200 mesh6 amd").value();
  EXPECT_EQ(line.gpu, "GH200");
  EXPECT_EQ(line.gpus, 4);
  EXPECT_EQ(line.sm, 90);
  EXPECT_EQ(line.per_pair, 6);
  EXPECT_EQ(line.nics, 4);
  EXPECT_EQ(line.nic_gbit, 200);
  EXPECT_EQ(line.network, Network::kSlingshot);
  EXPECT_TRUE(line.amd);
}

TEST(MachineLine, SaysWhatIsWrongWithAWord) {
  for (const char* text : {"", "8xib400", "8xH100 8xib", "8xH100 8xfoo400", "8xH100 8xH200",
                           "0xH100", "129xH100", "8xH100 8xib400 8xib400", "8xH100 mesh", "x8"}) {
    EXPECT_FALSE(parse_machine_line(text)) << text;
  }
  EXPECT_THAT(parse_machine_line("8xH100 8xfoo400").error().message(),
              testing::AllOf(HasSubstr("8xfoo400"), HasSubstr("tcpxo"), HasSubstr("B200")));
}

TEST(MachineLine, JoinsTheNicsOfAGpu) {  // as plugins do with the four EFA devices of each
  const FittedMachine joined = machine("8xH100 32xefa100", 2);
  EXPECT_EQ(joined.nics, 8);
  EXPECT_EQ(joined.nic_gb_per_s, 400);
  EXPECT_EQ(machine("8xH100 4xtcpx200", 2).nics, 4);
}

TEST(FittedMachine, KnowsTheGenerationByLinksAndCapability) {
  EXPECT_EQ(machine("8xA100").gpu, GpuFamily::kAmpere);
  EXPECT_EQ(machine("4xH200 mesh6").gpu, GpuFamily::kHopper);
  EXPECT_EQ(machine("8xB300").gpu, GpuFamily::kBlackwell);
  EXPECT_EQ(machine("8xL40S").gpu, GpuFamily::kPcie);
  EXPECT_EQ(machine("4xV100-PCIe").gpu, GpuFamily::kPcie);
}

// Logged on 8x H100 and on two nodes of 8x H200 with EFA (docs/simulator.md).
TEST(FittedMachine, ChoosesAsNcclDoes) {
  const FittedMachine one = machine("8xH100");
  EXPECT_EQ(way(one, FittedCall::kAllReduce, 1 << 20), "ring/LL");
  EXPECT_EQ(way(one, FittedCall::kAllReduce, 2 << 20), "nvls/Simple");
  const FittedMachine two = machine("8xH200 16xefa200", 2);
  EXPECT_EQ(way(two, FittedCall::kAllReduce, 128 << 10), "tree/LL");
  EXPECT_EQ(way(two, FittedCall::kAllReduce, 32 << 20), "nvlstree/Simple");
}

TEST(FittedMachine, HasOnlySimpleOverEfaBelowHopper) {
  EXPECT_EQ(machine("2xA100 2xefa100", 2).choose(FittedCall::kAllReduce, 8).protocol,
            NcclProtocol::kSimple);
  EXPECT_EQ(machine("2xA100 2xib200", 2).choose(FittedCall::kAllReduce, 8).protocol,
            NcclProtocol::kLL);
}

TEST(FittedTimes, AreThoseOfPublicTables) {  // in us; each within a quarter
  struct Published {
    const char* machine;
    int nodes;
    FittedCall call;
    size_t bytes;
    double us;
  };
  for (const Published& one : {
           Published{"8xH100", 1, FittedCall::kAllReduce, 8, 12.9},
           Published{"8xH100", 1, FittedCall::kAllReduce, 1 << 30, 4253},
           Published{"8xH100 8xib400", 2, FittedCall::kAllReduce, 8, 27},
           Published{"8xH100 8xib400", 2, FittedCall::kAllReduce, 1 << 30, 4500},
           Published{"8xH100 32xefa100", 2, FittedCall::kAllReduce, 8, 69},
           Published{"8xH100 8xtcpxo200", 2, FittedCall::kAllReduce, 8, 123},
           Published{"8xA100", 1, FittedCall::kAllReduce, 1 << 30, 8160},
           Published{"8xB200", 1, FittedCall::kAllGather, 256 << 20, 393},
           Published{"8xH100", 1, FittedCall::kAllToAll, 256 << 20, 764},
       }) {
    const double us = time_us(machine(one.machine, one.nodes), one.call, one.bytes);
    EXPECT_LT(std::abs(us / one.us - 1), 0.25) << one.machine << " " << us << " " << one.us;
  }
}

TEST(FittedTimes, OfManyNodesAreThoseOfTheNics) {
  const FittedMachine twelve = machine("8xH100 8xib400", 12);
  const double us = time_us(twelve, FittedCall::kAllReduce, size_t{8} << 30);
  const double bus =
      static_cast<double>(size_t{8} << 30) / us / 1e3 * bus_factor(FittedCall::kAllReduce, 96);
  EXPECT_GT(bus, 300);
  EXPECT_LT(bus, 400);
}

TEST(FittedTimes, OfOneProcessAreLaunches) {
  const FittedMachine one = machine("8xA100");
  EXPECT_GT(time_us(one, FittedCall::kAllReduce, 8, Setup::kOneProcess),
            1.3 * time_us(one, FittedCall::kAllReduce, 8));
  EXPECT_EQ(time_us(one, FittedCall::kAllReduce, 1 << 30, Setup::kOneProcess),
            time_us(one, FittedCall::kAllReduce, 1 << 30));
}

TEST(Predicted, SaysWhenMeasuredTimesAreTooLong) {
  const FittedMachine one = machine("8xH100");
  PredictedTable table{.machine = one, .calls = {{.call = FittedCall::kAllReduce}}};
  for (const size_t bytes : {size_t{64} << 20, size_t{256} << 20}) {
    table.calls[0].measured.emplace_back(bytes, time_us(one, FittedCall::kAllReduce, bytes));
  }
  EXPECT_THAT(format_predicted(table), HasSubstr("1.00 of the predicted ones\n"));
  for (auto& [bytes, us] : table.calls[0].measured) {
    us *= 2;
  }
  EXPECT_THAT(format_predicted(table), HasSubstr("slower than this machine should be"));
  EXPECT_THAT(format_predicted_json(table), HasSubstr("\"measured_us\":"));
  const Plot plot = plot_predicted(table, "8xH100");
  ASSERT_EQ(plot.lines.size(), 2U);
  EXPECT_TRUE(plot.lines[1].marks);
  EXPECT_THAT(draw_plots({&plot, 1}), HasSubstr(">measured</text>"));
}

}  // namespace
}  // namespace plexus
