// SPDX-License-Identifier: Apache-2.0
#include "tools/sim/trace.hpp"

#include <nlohmann/json.hpp>

#include "tests/unit/tools/sim/jobs.hpp"

namespace plexus {
namespace {

TEST(SimTrace, HasASliceForEachStepAndACounterForEachLinkInUse) {
  auto fabric = Fabric::parse("dc a torus size=4 gbit_per_s=80 latency_us=1\n");
  ASSERT_TRUE(fabric.has_value());
  SimJob job = make_job("ring_all_reduce", 4, 4096);
  const auto network = make_network(job);
  ASSERT_TRUE(network.has_value());
  SimTrace trace(network.value(), &fabric.value());
  run(network, &fabric.value(), trace.watch());
  const auto json = nlohmann::json::parse(trace.format());
  size_t slices = 0;
  size_t counters = 0;
  double last_us = 0;
  for (const auto& event : json["traceEvents"]) {
    slices += event["ph"] == "X" ? 1 : 0;
    counters += event["ph"] == "C" ? 1 : 0;
    last_us = std::max(last_us, event.value("ts", 0.0));
  }
  EXPECT_EQ(slices, 4U * 7);
  EXPECT_GT(counters, 8U);
  EXPECT_NEAR(last_us, run(network, &fabric.value()).time_us, 1);
  EXPECT_NE(trace.format().find("recv_reduce_copy_send"), std::string::npos);
}

}  // namespace
}  // namespace plexus
