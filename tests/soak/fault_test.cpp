// SPDX-License-Identifier: Apache-2.0
// Faults as a seed gives them, and how sentences are judged.
#include "tests/soak/fault.hpp"

#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/soak/generate.hpp"
#include "tests/soak/verdict.hpp"

namespace plexus::soak {
namespace {

constexpr uint64_t kSeeds = 300;

FaultKinds all_kinds() {
  FaultKinds kinds;
  kinds.add("all");
  return kinds;
}

FaultKinds only(FaultKind kind) {
  FaultKinds kinds;
  kinds.add(kind);
  return kinds;
}

TEST(Fault, ASeedNamesIt) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    const Job one = generate(seed, {}, all_kinds());
    const Job two = generate(seed, {}, all_kinds());
    EXPECT_EQ(describe(one), describe(two));
  }
}

TEST(Fault, EveryKindComes) {
  std::set<FaultKind> seen;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    seen.insert(choose_kind(seed, all_kinds()));
  }
  EXPECT_EQ(seen.size(), kNumFaults);
}

TEST(Fault, StrikesAtAStepOfTheGuiltyProcess) {
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    const Job job = generate(seed, {}, all_kinds());
    ASSERT_EQ(job.illegal, "") << "seed " << seed;
    ASSERT_TRUE(job.fault.has_value());
    const Fault& fault = *job.fault;
    ASSERT_LT(static_cast<size_t>(fault.thread), job.threads.size());
    const Thread& thread = job.threads[static_cast<size_t>(fault.thread)];
    EXPECT_EQ(thread.process, fault.process);
    EXPECT_LT(static_cast<size_t>(fault.step), thread.steps.size());
    EXPECT_GE(job.processes.size(), 2U) << "somebody is left to report it";
  }
}

TEST(Fault, OfTheNetworkPutsEachProcessOnAHost) {
  for (uint64_t seed = 1; seed <= 30; ++seed) {
    const Job job = generate(seed, {}, only(FaultKind::kCut));
    std::set<std::string> hosts;
    for (const Process& process : job.processes) {
      hosts.insert(process.host_id);
    }
    EXPECT_EQ(hosts.size(), job.processes.size());
  }
}

TEST(Fault, MismatchAltersOneCallOfOneRank) {
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    const Job job = generate(seed, {}, only(FaultKind::kMismatch));
    int naltered = 0;
    for (const Thread& thread : job.threads) {
      for (const Step& step : thread.steps) {
        for (const Call& call : step.calls) {
          naltered += call.operation == job.fault->altered ? 1 : 0;
        }
      }
    }
    EXPECT_EQ(naltered, job.fault->operation < 0 ? 0 : 1) << "seed " << seed;
  }
}

TEST(Fault, TheCommunicatorOfAllStaysWhereItIsNeeded) {
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    const Job job = generate(seed, {}, only(FaultKind::kKill));
    if (job.fault->recovery == Recovery::kNone) {
      continue;
    }
    for (const Thread& thread : job.threads) {
      for (const Step& step : thread.steps) {
        for (const Place& place : step.places) {
          EXPECT_NE(place.comm, 0) << "seed " << seed;
        }
      }
    }
  }
}

TEST(Verdict, NamesARankByItsNumberOrItsProcess) {
  EXPECT_TRUE(names("rank 3 (host:4711) died", {3}, 99));
  EXPECT_TRUE(names("rank 3 (host:4711) died", {5}, 4711));
  EXPECT_TRUE(names("ranks 1 and 3 called ncclCommGrow", {3}, 99));
  EXPECT_TRUE(names("2 of 9 ranks did not come (rank 4, 7): start them", {7}, 99));
  EXPECT_TRUE(names("rank 1 joining 10.0.0.1:80: rank 2 died", {2}, 99));
  EXPECT_FALSE(names("rank 3 (host:4711) died", {4, 31}, 471));
  EXPECT_FALSE(names("a rank that was about to join failed", {3}, 99));
  EXPECT_FALSE(names("3 ranks did not come", {3}, 99));
}

TEST(Verdict, FindsWhoKeepsOthersWaitingInALog) {
  const std::string waited =
      "NCCL WARN comm 0x3 of 4 ranks: rank 1 has waited for 30 s in all_reduce: ";
  const auto judge = [](const std::string& log) {
    return judge_log(log, 99, FaultKind::kFreeze).reported;
  };
  EXPECT_EQ(judge("NCCL WARN rank 2 (host:99) died\n"), Reported::kNothing);
  EXPECT_EQ(judge(waited + "rank 2 (host:98) does not answer\n"), Reported::kSomeRank);
  EXPECT_EQ(judge(waited + "rank 2 (host:99) is still at work\n"), Reported::kGuiltyRank);
  EXPECT_EQ(judge("a line\n" + waited + "rank 2 (host:99) does not answer\n"), Reported::kCause);
}

}  // namespace
}  // namespace plexus::soak
