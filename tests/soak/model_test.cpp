// SPDX-License-Identifier: Apache-2.0
#include "tests/soak/model.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/soak/generate.hpp"

namespace plexus::soak {
namespace {

using ::testing::HasSubstr;

// Communicators A and B of two ranks, with one thread per rank. Places: A0 A1 B0 B1; streams: two
// of thread 0, two of thread 1. Operation 0 makes A, operation 1 makes B; the tests' operations
// follow.
constexpr int kA = 0;
constexpr int kB = 2;
constexpr int kFirst = 2;

struct Two {
  Two() {
    program.nplaces = 4;
    program.nstreams = 4;
    program.participants = {2, 2};
    program.threads.resize(2);
    for (int rank = 0; rank < 2; ++rank) {
      add(rank, {.kind = ModelStepKind::kMake, .operation = 0, .made = {kA + rank}});
      add(rank, {.kind = ModelStepKind::kMake, .operation = 1, .made = {kB + rank}});
    }
  }
  void add(int rank, ModelStep step) {
    program.threads[static_cast<size_t>(rank)].push_back(std::move(step));
  }
  void calls(int rank, std::vector<ModelCall> calls) {
    for (const ModelCall& call : calls) {
      program.participants.resize(
          std::max(program.participants.size(), static_cast<size_t>(call.operation) + 1), 2);
    }
    add(rank, {.kind = ModelStepKind::kCalls, .calls = std::move(calls)});
  }
  void sync(int rank, std::vector<int> streams) {
    add(rank, {.kind = ModelStepKind::kSync, .streams = std::move(streams)});
  }
  void destroy(int rank, int comm, ModelStepKind kind = ModelStepKind::kDestroy) {
    add(rank, {.kind = kind, .places = {comm + rank}});
  }
  [[nodiscard]] Verdict judged() const { return judge(program); }

  ModelProgram program;
};

ModelCall all(int operation, int comm, int rank, int stream = kNoStream) {
  return {.operation = operation,
          .place = comm + rank,
          .stream = stream == kNoStream ? kNoStream : rank * 2 + stream};
}
ModelCall send(int operation, int comm, int rank, int stream = kNoStream) {
  ModelCall call = all(operation, comm, rank, stream);
  call.kind = ModelKind::kSend;
  call.peer = comm + 1 - rank;
  return call;
}
ModelCall recv(int operation, int comm, int rank, int stream = kNoStream) {
  ModelCall call = send(operation, comm, rank, stream);
  call.kind = ModelKind::kRecv;
  return call;
}

TEST(SoakModel, SameOrderOfBlockingCallsIsLegal) {
  Two two;
  for (int rank = 0; rank < 2; ++rank) {
    two.calls(rank, {all(kFirst, kA, rank)});
    two.calls(rank, {all(kFirst + 1, kB, rank)});
  }
  EXPECT_TRUE(two.judged().is_legal) << two.judged().why;
}

TEST(SoakModel, CrossedCommunicatorsAreIllegalWhenCallsBlock) {
  Two two;
  for (int rank = 0; rank < 2; ++rank) {
    two.calls(rank, {all(kFirst + rank, rank == 0 ? kA : kB, rank)});
    two.calls(rank, {all(kFirst + 1 - rank, rank == 0 ? kB : kA, rank)});
  }
  EXPECT_FALSE(two.judged().is_legal);
}

TEST(SoakModel, CrossedCommunicatorsAreLegalOnTwoStreamsAndIllegalOnOne) {
  for (const bool is_one_stream : {false, true}) {
    Two two;
    for (int rank = 0; rank < 2; ++rank) {
      two.calls(rank, {all(kFirst + rank, rank == 0 ? kA : kB, rank, 0)});
      two.calls(rank, {all(kFirst + 1 - rank, rank == 0 ? kB : kA, rank, is_one_stream ? 0 : 1)});
      two.sync(rank, {rank * 2, rank * 2 + 1});
    }
    EXPECT_EQ(two.judged().is_legal, !is_one_stream);
  }
}

TEST(SoakModel, CrossedCommunicatorsInOneGroupAreLegal) {
  for (const int stream : {kNoStream, 0}) {
    Two two;
    two.calls(0, {all(kFirst, kA, 0, stream), all(kFirst + 1, kB, 0, stream)});
    two.calls(1, {all(kFirst + 1, kB, 1, stream), all(kFirst, kA, 1, stream)});
    EXPECT_TRUE(two.judged().is_legal) << two.judged().why;
  }
}

TEST(SoakModel, GroupOfOneRankAgainstSingleCallsOfTheOtherIsLegal) {
  Two two;
  two.calls(0, {all(kFirst, kA, 0), all(kFirst + 1, kB, 0)});
  two.calls(1, {all(kFirst + 1, kB, 1)});
  two.calls(1, {all(kFirst, kA, 1)});
  EXPECT_TRUE(two.judged().is_legal) << two.judged().why;
}

TEST(SoakModel, CollectivesOfOneCommunicatorKeepTheirOrderEvenInGroups) {
  Two two;
  two.calls(0, {all(kFirst, kA, 0), all(kFirst + 1, kA, 0)});
  two.calls(1, {all(kFirst + 1, kA, 1), all(kFirst, kA, 1)});
  EXPECT_FALSE(two.judged().is_legal);
}

TEST(SoakModel, CollectivesOfOneCommunicatorAreGroupedAlike) {
  Two two;
  two.calls(0, {all(kFirst, kA, 0), all(kFirst + 1, kA, 0)});
  two.calls(1, {all(kFirst, kA, 1)});
  two.calls(1, {all(kFirst + 1, kA, 1)});
  EXPECT_THAT(two.judged().why, HasSubstr("grouped in another way"));
}

TEST(SoakModel, SendAgainstSendIsIllegalOutsideAGroupAndLegalInside) {
  for (const bool is_grouped : {false, true}) {
    Two two;
    for (int rank = 0; rank < 2; ++rank) {
      if (is_grouped) {
        two.calls(rank, {send(kFirst + rank, kA, rank), recv(kFirst + 1 - rank, kA, rank)});
      } else {
        two.calls(rank, {send(kFirst + rank, kA, rank)});
        two.calls(rank, {recv(kFirst + 1 - rank, kA, rank)});
      }
    }
    EXPECT_EQ(two.judged().is_legal, is_grouped);
  }
}

TEST(SoakModel, SendWaitsForItsReceive) {
  Two two;  // legal only if sends were buffered
  two.calls(0, {send(kFirst, kA, 0)});
  two.calls(0, {all(kFirst + 1, kB, 0)});
  two.calls(1, {all(kFirst + 1, kB, 1)});
  two.calls(1, {recv(kFirst, kA, 1)});
  EXPECT_FALSE(two.judged().is_legal);
}

TEST(SoakModel, ReceivesMeetSendsInOrder) {
  Two two;
  two.calls(0, {send(kFirst, kA, 0), send(kFirst + 1, kA, 0)});
  two.calls(1, {recv(kFirst + 1, kA, 1), recv(kFirst, kA, 1)});
  EXPECT_THAT(two.judged().why, HasSubstr("another receive"));
}

TEST(SoakModel, ACommunicatorsCallsRunInOrderOverItsStreams) {
  Two two;
  two.calls(0, {all(kFirst, kA, 0, 0)});
  two.calls(0, {all(kFirst + 1, kA, 0, 1)});
  two.calls(1, {all(kFirst + 1, kA, 1, 0)});
  two.calls(1, {all(kFirst, kA, 1, 1)});
  EXPECT_FALSE(two.judged().is_legal);
}

TEST(SoakModel, BlockingCallWaitsForItsCommunicatorsEarlierCalls) {
  Two two;
  two.calls(0, {all(kFirst, kA, 0, 0)});
  two.calls(0, {all(kFirst + 1, kA, 0)});
  two.calls(1, {all(kFirst + 1, kA, 1)});
  two.calls(1, {all(kFirst, kA, 1)});
  EXPECT_FALSE(two.judged().is_legal);
}

TEST(SoakModel, CollectiveOfAGroupComesBeforeItsSends) {
  Two two;
  two.calls(0, {send(kFirst, kA, 0), all(kFirst + 1, kA, 0)});
  two.calls(1, {recv(kFirst, kA, 1)});
  two.calls(1, {all(kFirst + 1, kA, 1)});
  EXPECT_FALSE(two.judged().is_legal);
}

TEST(SoakModel, DestroyIsLocalAndNeedsSynchronizedWork) {
  for (const bool is_synchronized : {false, true}) {
    Two two;
    for (int rank = 0; rank < 2; ++rank) {
      two.calls(rank, {all(kFirst, kA, rank, 0)});
      if (is_synchronized) {
        two.sync(rank, {rank * 2});
      }
      if (rank == 1) {  // the other rank has left
        two.calls(rank, {all(kFirst + 1, kB, rank)});
      }
      two.destroy(rank, kA);
      if (rank == 0) {
        two.calls(rank, {all(kFirst + 1, kB, rank)});
      }
    }
    EXPECT_EQ(two.judged().is_legal, is_synchronized);
  }
}

TEST(SoakModel, FinalizeWaitsForTheWork) {
  Two two;
  for (int rank = 0; rank < 2; ++rank) {
    two.calls(rank, {all(kFirst, kA, rank, 0)});
    two.destroy(rank, kA, ModelStepKind::kFinalize);
  }
  EXPECT_TRUE(two.judged().is_legal) << two.judged().why;
}

TEST(SoakModel, NothingIsCalledAfterDestroy) {
  Two two;
  for (int rank = 0; rank < 2; ++rank) {
    two.destroy(rank, kA);
    two.calls(rank, {all(kFirst, kA, rank)});
  }
  EXPECT_THAT(two.judged().why, HasSubstr("after its end"));
}

TEST(SoakModel, ACommunicatorIsMadeFromOneWithoutWorkUnderWay) {
  Two two;
  two.program.nplaces = 6;
  two.program.participants.push_back(2);
  for (int rank = 0; rank < 2; ++rank) {
    two.calls(rank, {all(kFirst + 1, kA, rank, 0)});
    two.add(rank, {.kind = ModelStepKind::kMake,
                   .operation = kFirst,
                   .places = {kA + rank},
                   .made = {4 + rank}});
  }
  EXPECT_THAT(two.judged().why, HasSubstr("work under way"));
}

TEST(SoakModel, SplitAgainstACollectiveIsIllegal) {
  Two two;
  two.program.nplaces = 6;
  two.program.participants.push_back(2);
  const auto split = [](int rank) {
    return ModelStep{.kind = ModelStepKind::kMake,
                     .operation = kFirst,
                     .places = {kA + rank},
                     .made = {4 + rank}};
  };
  two.add(0, split(0));
  two.calls(0, {all(kFirst + 1, kA, 0)});
  two.calls(1, {all(kFirst + 1, kA, 1)});
  two.add(1, split(1));
  EXPECT_FALSE(two.judged().is_legal);
}

TEST(SoakModel, LocalRanksOfOneThreadNeedAGroup) {
  for (const bool is_grouped : {false, true}) {
    ModelProgram program;
    program.nplaces = 2;
    program.participants = {2, 2};
    auto& steps = program.threads.emplace_back();
    steps.push_back({.kind = ModelStepKind::kMake, .operation = 0, .made = {0, 1}});
    const ModelCall first{.operation = 1, .place = 0};
    const ModelCall second{.operation = 1, .place = 1};
    if (is_grouped) {
      steps.push_back({.kind = ModelStepKind::kCalls, .calls = {first, second}});
    } else {
      steps.push_back({.kind = ModelStepKind::kCalls, .calls = {first}});
      steps.push_back({.kind = ModelStepKind::kCalls, .calls = {second}});
    }
    EXPECT_EQ(judge(program).is_legal, is_grouped);
  }
}

/// Generated jobs are legal before and after their order is changed.
TEST(SoakModel, GeneratedJobsAreLegal) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    const Job job = generate(seed, Features{});
    EXPECT_EQ(job.illegal, "") << "seed " << seed;
    EXPECT_TRUE(judge(model_of(job)).is_legal) << "seed " << seed;
  }
}

}  // namespace
}  // namespace plexus::soak
