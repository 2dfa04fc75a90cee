// SPDX-License-Identifier: Apache-2.0
// Slow links, slow ranks and cut links.
#include "tools/sim/faults.hpp"

#include <cmath>

#include <gmock/gmock.h>

#include "tests/unit/tools/sim/jobs.hpp"

namespace plexus {
namespace {

SimFaults faults_of(const char* script, uint64_t seed = 1) {
  auto faults = SimFaults::parse(script, seed);
  EXPECT_TRUE(faults.has_value()) << (faults ? "" : faults.error().message());
  return std::move(faults).value();
}

SimResult run_with(const SimJob& job, const SimFaults& faults) {
  const auto network = make_network(job);
  auto result = simulate(network.value(), nullptr, {}, &faults);
  EXPECT_TRUE(result.has_value()) << (result ? "" : result.error().message());
  return std::move(result).value();
}

// A message of the chain from rank 0 over 1 and 2 to 3.
SimJob chain() { return make_job("chain_broadcast", 4, 4096); }

TEST(SimFaults, DelayTheMessagesOfALink) {
  const double without = time_of(chain());
  EXPECT_NEAR(run_with(chain(), faults_of("send rank=1 peer=2: delay=7us")).time_us, without + 7,
              1e-9);
  EXPECT_NEAR(run_with(chain(), faults_of("send rank=2 peer=1: delay=7us")).time_us, without, 1e-9);
  EXPECT_NEAR(run_with(chain(), faults_of("*: delay=7us")).time_us, without + 3 * 7, 1e-9);
}

TEST(SimFaults, LetBytesLeaveNoFasterThanTheRate) {
  const double without = time_of(chain());
  // 8 Mbit/s are a byte in each us
  EXPECT_NEAR(run_with(chain(), faults_of("send rank=0: rate=8Mbit/s")).time_us, without + 4096,
              1e-6);
}

TEST(SimFaults, StallALinkWithEachSoManyBytes) {
  const double without = time_of(chain());
  EXPECT_NEAR(run_with(chain(), faults_of("send rank=0: stall=2KiB/3us")).time_us, without + 2 * 3,
              1e-6);
}

TEST(SimFaults, MakeEachStepOfARankSlower) {
  const double without = time_of(chain());
  EXPECT_NEAR(run_with(chain(), faults_of("rank=2: slow=9us")).time_us, without + 9, 1e-9);
}

TEST(SimFaults, AreTheSameForASeed) {
  const SimJob job = make_job("ring_all_reduce", 8, 1 << 20);
  const char* const script = "send: jitter=50us";
  const SimResult first = run_with(job, faults_of(script, 3));
  EXPECT_EQ(first.rank_us, run_with(job, faults_of(script, 3)).rank_us);
  EXPECT_NE(first.rank_us, run_with(job, faults_of(script, 4)).rank_us);
  EXPECT_GT(first.time_us, time_of(job));
}

TEST(SimFaults, RandomNumbersAreSpread) {
  const SimFaults faults = faults_of("*: jitter=1us");
  double sum = 0;
  constexpr int kCount = 1000;
  for (int i = 0; i < kCount; ++i) {
    const double number = faults.random(3, static_cast<uint64_t>(i));
    EXPECT_GE(number, 0);
    EXPECT_LT(number, 1);
    sum += number;
  }
  EXPECT_NEAR(sum / kCount, 0.5, 0.05);
}

TEST(SimFaults, SayWhoWaitsForACutLink) {
  const SimResult result = run_with(chain(), faults_of("recv rank=2: cut=1"));
  EXPECT_TRUE(std::isinf(result.time_us));
  ASSERT_EQ(result.waits.size(), 2U);
  EXPECT_EQ(result.waits[0].rank, 2);
  EXPECT_EQ(result.waits[0].peer, 1);
  EXPECT_TRUE(result.waits[0].receives);
  EXPECT_EQ(result.waits[1].rank, 3);
  EXPECT_EQ(result.waits[1].peer, 2);
  // what is before the cut byte arrives
  EXPECT_TRUE(run_with(chain(), faults_of("recv rank=2: cut=4096")).waits.empty());
}

TEST(SimFaults, SayWhoWaitsForASlot) {
  SimJob job = make_job("chain_broadcast", 2, 64 * 1024);
  job.slot_bytes = 1024;
  const SimResult result = run_with(job, faults_of("send: cut=0"));
  ASSERT_EQ(result.waits.size(), 2U);
  EXPECT_EQ(result.waits[0].rank, 0);
  EXPECT_FALSE(result.waits[0].receives);
}

TEST(SimFaults, RefuseWhatTheSimulatorHasNot) {
  for (const char* const script : {"*: flip=1", "nonsense", "*: delay=1", "recv: slow=1us"}) {
    EXPECT_TRUE(SimFaults::parse(script, 1).has_error()) << script;
  }
  EXPECT_THAT(SimFaults::parse("*: again=5%", 1).error().message(), testing::HasSubstr("again="));
  const SimFaults faults = faults_of("*: delay=1us");
  const auto some = make_symmetric_network(make_job("ring_all_reduce", 8, 4096));
  EXPECT_TRUE(simulate(some.value(), nullptr, {}, &faults).has_error());
}

}  // namespace
}  // namespace plexus
