// SPDX-License-Identifier: Apache-2.0
// Tuners of NCCL's own ABI, one fixture per version, are usable as native ones through core/plugin;
// unusable ones are refused in one sentence.
#include <array>
#include <cstdlib>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/log.hpp"
#include "core/plugin/library.hpp"
#include "core/plugin/tuner_plugin.hpp"

namespace plexus {
namespace {

using testing::HasSubstr;

constexpr size_t kTreeSimple = 0 * 3 + 2;
constexpr size_t kRingSimple = 1 * 3 + 2;

std::string file(const std::string& name) {
  return std::string(std::getenv("PLEXUS_TEST_EXAMPLE_DIR")) + "/lib" + name + ".so";
}

/// The arguments that a fixture received (tuner.c).
struct Seen {
  int inits, finalizes, calls;
  size_t nranks, nnodes, bytes;
  int function, pipelined, registered;
  int domains, ranks_min, ranks_max;
  double net_latency;
  float costs[21];
  uint64_t comm_id;
};

plexus_tuner_comm_t make_comm() {
  plexus_tuner_comm_t comm{};
  comm.struct_size = sizeof(comm);
  comm.nranks = 6;
  comm.nnodes = 2;
  comm.ndatacenters = 1;
  comm.ranks_per_node_max = 4;
  comm.cores_per_node_min = 2;
  comm.comm_id = 77;
  return comm;
}

plexus_tuner_candidate_t make_candidate(const char* algorithm, uint32_t rounds) {
  plexus_tuner_candidate_t candidate{};
  candidate.struct_size = sizeof(candidate);
  candidate.algorithm = algorithm;
  candidate.protocol = "Simple";
  candidate.rounds = rounds;
  candidate.chunks_per_loop = 1;
  candidate.chunks_moved = 1;
  candidate.channels_min = 1;
  candidate.channels_max = 8;
  candidate.channels = 1;
  candidate.chunk_bytes = 4096;
  candidate.time_ns = -1;
  return candidate;
}

class NcclTuner : public testing::TestWithParam<int> {
 protected:
  static constexpr size_t kRing = 0;
  static constexpr size_t kTree = 1;
  static constexpr size_t kAllPairs = 2;

  void TearDown() override { unsetenv("FIXTURE_TUNER"); }
  static void answer(const char* how) { setenv("FIXTURE_TUNER", how, 1); }
  static int version() { return GetParam(); }
  static std::string path() { return file("nccl-tuner-fixture-v" + std::to_string(version())); }
  static const Seen& seen() {
    const auto object = Library::load(path()).value().find_object("tuner_fixture");
    return *static_cast<const Seen*>(object.value().address);
  }
  static std::unique_ptr<Tuner> open() {
    return Tuner::open({.plugin = path(), .folders = {}, .net_plugins = {}, .own = {}}, make_comm())
        .value();
  }
  /// `plugin` where tuner-default is installed.
  static std::unique_ptr<Tuner> open_beside_own(const std::string& plugin) {
    return Tuner::open({.plugin = plugin,
                        .folders = {},
                        .net_plugins = {},
                        .own_folder = std::getenv("PLEXUS_TEST_LIB_DIR")},
                       make_comm())
        .value();
  }

  bool ask(Tuner& tuner, const char* collective = "all_reduce", size_t built_in = kAllPairs) {
    plexus_tuner_call_t call{};
    call.struct_size = sizeof(call);
    call.collective = collective;
    call.size_bytes = 1000;
    call.element_bytes = 4;
    call.calls_in_group = 5;
    call.registered = 1;
    candidates_ = {make_candidate("ring", 10), make_candidate("tree", 8),
                   make_candidate("allpairs", 1)};
    return tuner.get_times(call, candidates_, built_in);
  }
  /// For the last ask: index of the shortest time.
  [[nodiscard]] size_t best() const {
    size_t at = candidates_.size();
    for (size_t i = 0; i < candidates_.size(); ++i) {
      const bool better =
          at == candidates_.size() || candidates_[i].time_ns < candidates_[at].time_ns;
      at = candidates_[i].time_ns >= 0 && better ? i : at;
    }
    return at;
  }
  std::array<plexus_tuner_candidate_t, 3> candidates_{};
};

TEST_P(NcclTuner, IsStartedWithTheCommunicatorAndEndedOnce) {
  const Seen before = seen();
  {
    const auto tuner = open();
    ASSERT_NE(tuner, nullptr);
    EXPECT_THAT(tuner->name(), HasSubstr("fixture (ncclTunerPlugin_v" + std::to_string(version())));
    EXPECT_EQ(seen().inits, before.inits + 1);
    EXPECT_EQ(seen().nranks, 6u);
    EXPECT_EQ(seen().nnodes, 2u);
    if (version() >= 5) {
      EXPECT_EQ(seen().comm_id, 77u);
      EXPECT_EQ(seen().domains, 2);
      EXPECT_EQ(seen().ranks_min, 2);
      EXPECT_EQ(seen().ranks_max, 4);
      EXPECT_GT(seen().net_latency, 0);
    }
    EXPECT_EQ(seen().finalizes, before.finalizes);
  }
  EXPECT_EQ(seen().finalizes, before.finalizes + 1);
}

TEST_P(NcclTuner, IsToldTheCallInItsNumbers) {
  const auto tuner = open();
  const struct {
    const char* ours;
    int nccl;
  } collectives[] = {
      {"broadcast", 0}, {"reduce", 1}, {"all_gather", 2}, {"reduce_scatter", 3}, {"all_reduce", 4}};
  for (const auto& collective : collectives) {
    (void)ask(*tuner, collective.ours);
    EXPECT_EQ(seen().function, collective.nccl);
  }
  EXPECT_EQ(seen().bytes, 1000u);
  EXPECT_EQ(seen().pipelined, 5);
  EXPECT_EQ(seen().registered, version() >= 4 ? 1 : 0);
}

TEST_P(NcclTuner, CallsThatNcclDoesNotTuneAreNotAsked) {
  const auto tuner = open();
  const int calls = seen().calls;
  EXPECT_FALSE(ask(*tuner, "all_to_all"));
  EXPECT_EQ(seen().calls, calls);
}

TEST_P(NcclTuner, TheTableHasTheOfferedWaysAndNothingElse) {
  if (version() == 2) {
    return;  // v2 has no table
  }
  const auto tuner = open();
  (void)ask(*tuner);
  for (size_t place = 0; place < 21; ++place) {
    if (place == kTreeSimple || place == kRingSimple) {
      EXPECT_GT(seen().costs[place], 0) << place;
    } else {
      EXPECT_EQ(seen().costs[place], -1) << place;
    }
  }
  EXPECT_LT(seen().costs[kTreeSimple], seen().costs[kRingSimple]);
  (void)ask(*tuner, "all_reduce", kRing);
  EXPECT_LT(seen().costs[kRingSimple], seen().costs[kTreeSimple])
      << "the built-in choice is cheapest";
}

TEST_P(NcclTuner, ItsChoiceWins) {
  answer("tree");
  const auto tuner = open();
  ASSERT_TRUE(ask(*tuner));
  EXPECT_EQ(best(), kTree);
}

TEST_P(NcclTuner, OneThatChangesNothingHasNoOpinion) {
  const auto tuner = open();
  EXPECT_FALSE(ask(*tuner));
}

TEST_P(NcclTuner, WhereItsOwnIsInstalledTheTableHasThoseTimes) {
  const auto own = open_beside_own("default");
  const auto tuner = open_beside_own(path());
  const auto times_of = [&](Tuner& asked, const char* collective) {
    EXPECT_TRUE(ask(asked, collective, kAllPairs));
    return std::array{candidates_[0].time_ns, candidates_[1].time_ns, candidates_[2].time_ns};
  };
  const auto times = times_of(*own, "all_reduce");
  EXPECT_EQ(times_of(*tuner, "all_reduce"), times) << "what it does not change stays";
  if (version() > 2) {  // v2 has no table
    EXPECT_FLOAT_EQ(seen().costs[kRingSimple], static_cast<float>(times[kRing]) / 1e3F);
    EXPECT_FLOAT_EQ(seen().costs[kTreeSimple], static_cast<float>(times[kTree]) / 1e3F);
  }
  const int calls = seen().calls;
  EXPECT_EQ(times_of(*tuner, "alltoall"), times_of(*own, "alltoall")) << "not asked about";
  EXPECT_EQ(seen().calls, calls);
  answer("tree");
  const auto with_tree = times_of(*tuner, "all_reduce");
  EXPECT_EQ(best(), kTree);
  EXPECT_EQ(with_tree[kAllPairs], times[kAllPairs]);
}

TEST_P(NcclTuner, WhatWasNotOfferedCannotBeTaken) {
  answer("pat");  // no candidate
  const auto tuner = open();
  EXPECT_FALSE(ask(*tuner));
  answer(version() == 2 ? "half" : "elsewhere");  // v2: only an algorithm
  EXPECT_FALSE(ask(*tuner));
}

TEST_P(NcclTuner, ForbiddingOneLeavesTheRestInBuiltInOrder) {
  if (version() == 2) {
    return;  // v2 cannot exclude a pair
  }
  answer("forbid-ring");
  const auto tuner = open();
  ASSERT_TRUE(ask(*tuner, "all_reduce", kAllPairs));
  EXPECT_EQ(best(), kAllPairs);
  EXPECT_EQ(candidates_[kRing].time_ns, -1);
  ASSERT_TRUE(ask(*tuner, "all_reduce", kTree));
  EXPECT_EQ(best(), kTree);
}

TEST_P(NcclTuner, EqualTimesGoToTheLowerNumber) {
  if (version() == 2) {
    return;  // v2 names a single pair
  }
  answer("tie");
  const auto tuner = open();
  ASSERT_TRUE(ask(*tuner, "all_reduce", kRing));
  EXPECT_EQ(best(), kTree) << "Tree is 0, Ring is 1";
}

TEST_P(NcclTuner, ItsChannelsAreTakenWithinTheBounds) {
  const auto tuner = open();
  answer("channels");
  ASSERT_TRUE(ask(*tuner));
  EXPECT_EQ(candidates_[best()].channels, 3u);
  EXPECT_EQ(best(), kAllPairs);
  answer("huge-channels");
  ASSERT_TRUE(ask(*tuner));
  EXPECT_EQ(candidates_[best()].channels, 8u);
  answer("negative-channels");
  EXPECT_FALSE(ask(*tuner));
}

TEST_P(NcclTuner, ItsChunkIsBroughtToWhatCanBeUsed) {
  const auto tuner = open();
  for (const auto& [how, bytes] : {std::pair("chunk-zero", 4096U), {"chunk-huge", 4096U}}) {
    answer(how);
    EXPECT_FALSE(ask(*tuner, "all_reduce", kTree)) << how;
    EXPECT_EQ(candidates_[kTree].chunk_bytes, bytes) << how;
  }
  answer("chunk-odd");
  EXPECT_EQ(ask(*tuner, "all_reduce", kTree), version() == 6);
  EXPECT_EQ(candidates_[kTree].chunk_bytes, version() == 6 ? 960u : 4096u);
}

TEST_P(NcclTuner, FailureAndNonsenseLeaveTheBuiltInChoice) {
  const auto failing = open();
  answer("fail");
  EXPECT_FALSE(ask(*failing));
  EXPECT_FALSE(ask(*failing));
  const auto nonsense = open();
  answer("nonsense");
  EXPECT_FALSE(ask(*nonsense));
  const auto chunk = open();
  answer("chunk-fail");
  EXPECT_FALSE(ask(*chunk, "all_reduce", kTree));
  answer("refuse");
  EXPECT_EQ(open(), nullptr);
}

TEST_P(NcclTuner, AFailureIsToldOnceWithItsReason) {
  setenv("NCCL_DEBUG", "WARN", 1);
  reset_log();
  const auto tuner = open();
  answer("fail");
  testing::internal::CaptureStdout();
  EXPECT_FALSE(ask(*tuner));
  EXPECT_FALSE(ask(*tuner));
  const std::string text = testing::internal::GetCapturedStdout();
  unsetenv("NCCL_DEBUG");
  reset_log();
  const size_t first = text.find("the table is gone): the built-in choice is used");
  EXPECT_NE(first, std::string::npos) << text;
  EXPECT_EQ(text.find("the table is gone", first + 1), std::string::npos) << text;
}

INSTANTIATE_TEST_SUITE_P(Versions, NcclTuner, testing::Values(2, 3, 4, 5, 6));

TEST(NcclTunerLibrary, InTheNetPluginServesWhenNoOtherIsThere) {
  const std::string mixed = file("nccl-net-mixed");
  const TunerOptions unnamed = {.plugin = {}, .folders = {}, .net_plugins = mixed};
  EXPECT_THAT(Tuner::open(unnamed, make_comm()).value()->name(), HasSubstr("ncclTunerPlugin_v5"));
  const TunerOptions absent = {.plugin = "mixed", .folders = {}, .net_plugins = mixed};
  EXPECT_THAT(Tuner::open(absent, make_comm()).value()->name(), HasSubstr("ncclTunerPlugin_v5"));
  const TunerOptions none = {.plugin = "none", .folders = {}, .net_plugins = mixed};
  EXPECT_EQ(Tuner::open(none, make_comm()).value(), nullptr);
  const TunerOptions named = {
      .plugin = file("nccl-tuner-fixture-v2"), .folders = {}, .net_plugins = mixed};
  EXPECT_THAT(Tuner::open(named, make_comm()).value()->name(), HasSubstr("ncclTunerPlugin_v2"));
}

TEST(NcclTunerLibrary, IsFoundByNameInTheFoldersOfPlugins) {
  const TunerOptions options = {
      .plugin = "fixture-v4", .folders = std::getenv("PLEXUS_TEST_EXAMPLE_DIR"), .net_plugins = {}};
  EXPECT_THAT(Tuner::open(options, make_comm()).value()->name(), HasSubstr("ncclTunerPlugin_v4"));
}

TEST(NcclTunerLibrary, ThatCannotBeUsedIsRefusedWithTheReason) {
  const auto reason = [](const std::string& name) {
    auto tuner = Tuner::open({.plugin = file(name), .folders = {}, .net_plugins = {}}, make_comm());
    return tuner.has_error() ? tuner.error().message() : "accepted";
  };
  EXPECT_THAT(reason("nccl-tuner-odd-too-old"), HasSubstr("has ncclTunerPlugin_v1, expected"));
  EXPECT_THAT(reason("nccl-tuner-odd-too-small"), HasSubstr("has 32 bytes, expected 40"));
  EXPECT_THAT(reason("nccl-tuner-odd-empty-table"), HasSubstr("lacks init"));
  EXPECT_THAT(reason("nccl-net-tcp-v8"),
              HasSubstr("neither plexus_plugin_query nor ncclTunerPlugin"));
}

}  // namespace
}  // namespace plexus
