// SPDX-License-Identifier: Apache-2.0
// The verifier proves what is right and names what is wrong; hand-made programs, one defect each.
#include "kernels/program/verify.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "kernels/algorithms/prims.hpp"
#include "kernels/program/record.hpp"

namespace plexus {
namespace {

using testing::HasSubstr;

TEST(Verify, ProvesEveryAlgorithmUpToTwentyRanksAtEveryRoot) {
  for (const Algorithm& algorithm : algorithms()) {
    const bool is_pair = is_point_to_point(algorithm.collective);
    for (int nranks = is_pair ? 2 : 1; nranks <= (is_pair ? 2 : 20); ++nranks) {
      for (int root = 0; root < (is_rooted(algorithm.collective) ? nranks : 1); ++root) {
        for (const bool in_place : {false, true}) {
          const VerifyResult result = verify({.algorithm = &algorithm, .nranks = nranks, .root = root, .in_place = in_place});
          ASSERT_TRUE(result.proved) << algorithm.name << " " << nranks << " ranks, root " << root << ": " << result.reason;
        }
      }
    }
  }
}

TEST(Verify, RingOrderMayBeAny) {
  const std::vector<int> ring = {2, 0, 3, 1};
  std::vector<Program> programs;
  for (int rank = 0; rank < 4; ++rank) {
    programs.push_back(find_algorithm("ring_all_reduce")->record({.rank = rank, .ring = ring, .root = 0}));
  }
  EXPECT_EQ(verify_programs(programs, Collective::kAllReduce, 0, true, kSlots).reason, "");
}

TEST(Verify, ScalesToAThousandRanks) {
  const VerifyResult result = verify({.algorithm = find_algorithm("chain_broadcast"), .nranks = 1000, .root = 7, .in_place = false});
  EXPECT_TRUE(result.proved) << result.reason;
  EXPECT_EQ(result.rounds, 999);
}

/// Two ranks with the given programs.
VerifyResult check_pair(const std::function<void(RecordingPrims&)>& first, const std::function<void(RecordingPrims&)>& second,
                        Collective collective, bool in_place = false) {
  std::vector<Program> programs;
  for (int rank = 0; rank < 2; ++rank) {
    RecordingPrims prims(rank, 2, 2);
    (rank == 0 ? first : second)(prims);
    programs.push_back(std::move(prims).take());
  }
  return verify_programs(programs, collective, 0, in_place, kSlots);
}

TEST(Verify, FindsDeadlock) {
  const auto result = check_pair(
      [](RecordingPrims& prims) { prims.recv(1, Buffer::kOutput, 0); prims.send(Buffer::kInput, 0, 1); },
      [](RecordingPrims& prims) { prims.recv(0, Buffer::kOutput, 0); prims.send(Buffer::kInput, 0, 0); },
      Collective::kAllReduce);
  EXPECT_THAT(result.reason, HasSubstr("deadlock"));
}

TEST(Verify, FindsUnreceivedChunk) {
  const auto result = check_pair([](RecordingPrims& prims) { prims.send(Buffer::kInput, 0, 1); }, [](RecordingPrims&) {},
                                 Collective::kBroadcast);
  EXPECT_THAT(result.reason, HasSubstr("not received"));
}

TEST(Verify, FindsContributionThatIsMissing) {
  const auto result = check_pair(
      [](RecordingPrims& prims) { for (int c = 0; c < 2; ++c) { prims.copy(Buffer::kInput, Buffer::kOutput, c, Complete::kYes); } },
      [](RecordingPrims& prims) { for (int c = 0; c < 2; ++c) { prims.copy(Buffer::kInput, Buffer::kOutput, c, Complete::kYes); } },
      Collective::kAllReduce);
  EXPECT_THAT(result.reason, HasSubstr("contributions"));
}

TEST(Verify, FindsReadOfUndefinedChunk) {
  const auto result = check_pair([](RecordingPrims& prims) { prims.send(Buffer::kOutput, 0, 1); },
                                 [](RecordingPrims& prims) { prims.recv(0, Buffer::kOutput, 0); }, Collective::kBroadcast);
  EXPECT_THAT(result.reason, HasSubstr("undefined"));
}

TEST(Verify, FindsLentChunkThatIsOverwritten) {
  // In place, each rank lends its input and overwrites it with the result at once.
  const auto body = [](int peer) {
    return [peer](RecordingPrims& prims) {
      for (int chunk = 0; chunk < 2; ++chunk) {
        prims.send(Buffer::kInput, chunk, peer);
        prims.recv_reduce_copy(peer, Buffer::kInput, Buffer::kOutput, chunk, Complete::kYes);
      }
    };
  };
  EXPECT_THAT(check_pair(body(1), body(0), Collective::kAllReduce, true).reason, HasSubstr("may still read in place"));
}

TEST(Verify, FindsLanesThatShareAChunkWithoutOrder) {
  const auto result = check_pair(
      [](RecordingPrims& prims) {
        prims.lane(0);
        prims.send(Buffer::kInput, 0, 1);
        prims.send(Buffer::kInput, 1, 1);
        prims.copy(Buffer::kInput, Buffer::kOutput, 0);
        prims.copy(Buffer::kInput, Buffer::kOutput, 1);
        prims.lane(1);
        prims.copy(Buffer::kInput, Buffer::kOutput, 0);
      },
      [](RecordingPrims& prims) { prims.recv(0, Buffer::kOutput, 0); prims.recv(0, Buffer::kOutput, 1); },
      Collective::kBroadcast);
  EXPECT_THAT(result.reason, HasSubstr("in no order"));
}

TEST(Verify, FindsOrderOfReductionThatDiffersBetweenRanks) {
  std::vector<Program> programs;
  for (int rank = 0; rank < 3; ++rank) {
    programs.push_back(find_algorithm("all_pairs_all_reduce")->record({.rank = rank, .ring = std::vector<int>{0, 1, 2}, .root = 0}));
  }
  programs[2].lanes[0].steps[1].own_position = 0;
  EXPECT_THAT(verify_programs(programs, Collective::kAllReduce, 0, false, kSlots).reason, HasSubstr("another order"));
}

TEST(Verify, FindsValueThatIsNeverComplete) {
  std::vector<Program> programs;
  for (int rank = 0; rank < 2; ++rank) {
    programs.push_back(find_algorithm("ring_reduce_scatter")->record({.rank = rank, .ring = std::vector<int>{0, 1}, .root = 0}));
    programs.back().lanes[0].steps.back().completes = false;
  }
  EXPECT_THAT(verify_programs(programs, Collective::kReduceScatter, 0, false, kSlots).reason, HasSubstr("complete"));
}

}  // namespace
}  // namespace plexus
