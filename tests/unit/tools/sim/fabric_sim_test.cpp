// SPDX-License-Identifier: Apache-2.0
// Messages that share the links of a fabric.
#include "tests/unit/tools/sim/jobs.hpp"

namespace plexus {
namespace {

Fabric fabric_of(const char* text) {
  auto fabric = Fabric::parse(text);
  EXPECT_TRUE(fabric.has_value()) << (fabric ? "" : fabric.error().message());
  return std::move(fabric).value();
}

// 80 Gbit/s are 10 bytes per ns.
constexpr double kBytesPerUs = 10'000;

SimJob job_on_fabric(const char* algorithm, int nranks, int per_node, uint64_t bytes) {
  SimJob job = make_job(algorithm, nranks, bytes);
  job.ranks_per_node = per_node;
  job.costs.near = {.latency_us = 0.001, .us_per_byte = 0, .message_us = 0};
  job.costs.far = {.latency_us = 2, .us_per_byte = 0, .message_us = 0};
  return job;
}

TEST(FabricSim, DividesANicBetweenTheRanksThatSendThroughIt) {
  const Fabric fabric = fabric_of("dc a torus size=2 gbit_per_s=80 latency_us=1\n");
  // 4 messages leave each node
  const SimJob job = job_on_fabric("pairwise_all_to_all", 4, 2, 4 * 100'000);
  const double bytes = 100'000;
  EXPECT_NEAR(run(make_network(job), &fabric).time_us, 2 + 1 + 4 * bytes / kBytesPerUs, 0.01);
}

TEST(FabricSim, GivesAFlowMoreWhenAnotherOneEnds) {
  // Rank 0 sends to 1 and 2, and rank 1 on to others later: times differ, but all bytes arrive.
  const Fabric fabric = fabric_of("dc a torus size=4 gbit_per_s=80 latency_us=1\n");
  const SimJob job = job_on_fabric("binomial_broadcast", 4, 1, 8000);
  // root to 2 and 1 at once: half the NIC each... the second message's flow is another connection
  const double time_us = run(make_network(job), &fabric).time_us;
  EXPECT_GT(time_us, 2 * 3 + 2 * 8000 / kBytesPerUs);
  EXPECT_LT(time_us, 2 * 4 + 4 * 8000 / kBytesPerUs);
}

/// 16 hosts of 8 ranks below switches with one uplink each: the order that begins with the nearest
/// rank sends 30 of a rank's 254 chunks to other hosts, the other one 240.
TEST(FabricSim, HalvesNearestFirstBecauseUplinksAreNarrow) {
  const Fabric fabric =
      fabric_of("dc a fat-tree nodes=16 children=4,4 parents=1,1 gbit_per_s=80 latency_us=1\n");
  const auto time_us = [&](const char* algorithm) {
    return run(make_network(job_on_fabric(algorithm, 128, 8, 1 << 18)), &fabric).time_us;
  };
  EXPECT_LT(time_us("near_halving_all_reduce"), time_us("halving_doubling_all_reduce") / 4);
  EXPECT_LT(time_us("near_halving_all_reduce"), time_us("swing_all_reduce"));
}

TEST(FabricSim, IsDeterministic) {
  const Fabric fabric =
      fabric_of("dc a fat-tree nodes=16 children=4,4 parents=1,4 gbit_per_s=80 latency_us=1\n");
  const SimJob job = job_on_fabric("halving_doubling_all_reduce", 16, 1, 1 << 20);
  const SimResult first = run(make_network(job), &fabric);
  const SimResult second = run(make_network(job), &fabric);
  EXPECT_EQ(first.rank_us, second.rank_us);
  EXPECT_EQ(first.events, second.events);
}

TEST(FabricSim, Runs4096Ranks) {
  const Fabric fabric =
      fabric_of("dc a fat-tree nodes=512 children=16,32 parents=1,16 gbit_per_s=80 latency_us=1\n");
  SimJob job = job_on_fabric("recursive_doubling_all_reduce", 4096, 8, 4096);
  const SimResult result = run(make_network(job), &fabric);
  EXPECT_EQ(result.messages, 4096U * 12);
  EXPECT_GT(result.time_us, 9 * (2 + 2 * 1.0));  // 9 rounds between nodes
  job.algorithm = find_algorithm("tree_all_reduce");
  EXPECT_EQ(run(make_network(job), &fabric).messages, 4095U * 2);
}

TEST(FabricSim, RefusesOneRankPerClass) {
  const Fabric fabric = fabric_of("dc a torus size=4 gbit_per_s=80 latency_us=1\n");
  const auto network = make_symmetric_network(job_on_fabric("ring_all_reduce", 4, 1, 4096));
  ASSERT_TRUE(network.has_value());
  EXPECT_TRUE(simulate(network.value(), &fabric).has_error());
  const auto large = make_network(job_on_fabric("ring_all_reduce", 8, 1, 4096));
  EXPECT_TRUE(simulate(large.value(), &fabric).has_error());
}

}  // namespace
}  // namespace plexus
