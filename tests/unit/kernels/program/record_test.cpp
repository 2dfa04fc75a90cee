// SPDX-License-Identifier: Apache-2.0
// RecordingPrims records each verb as one step, and the table of algorithms is consistent.
#include "kernels/program/record.hpp"

#include <set>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/program/algorithms.hpp"

namespace plexus {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

/// The program with a single verb, of rank 1 of 4 with 4 chunks.
template <class Verb>
Program record_verb(const Verb& verb) {
  RecordingPrims prims(1, 4, 4);
  verb(prims);
  return std::move(prims).take();
}

const Step& only_step(const Program& program) {
  EXPECT_EQ(program.step_count(), 1U);
  return program.lanes[0].steps[0];
}

TEST(RecordingPrims, KeepsWhoAndHowManyInTheProgram) {
  const Program program = RecordingPrims(2, 5, 7).take();
  EXPECT_EQ(program.rank, 2);
  EXPECT_EQ(program.nranks, 5);
  EXPECT_EQ(program.chunks, 7);
  EXPECT_EQ(program.scratch_chunks, 0);
  EXPECT_EQ(program.lanes.size(), 1U);
  EXPECT_EQ(program.step_count(), 0U);
}

TEST(RecordingPrims, SendReadsAndDoesNotStore) {
  const Program program = record_verb([](auto& prims) { prims.send(Buffer::kInput, 3, 2); });
  EXPECT_EQ(only_step(program), (Step{.source = Buffer::kInput, .source_chunk = 3, .sends = 1}));
  EXPECT_THAT(program.send_peers(only_step(program)), ElementsAre(2));
  EXPECT_THAT(program.recv_peers(only_step(program)), IsEmpty());
}

TEST(RecordingPrims, SendThatMayNotGoByAddressSaysSo) {
  const Program program =
      record_verb([](auto& prims) { prims.send(Buffer::kInput, 3, 2, ByAddress::kNo); });
  EXPECT_EQ(only_step(program),
            (Step{.source = Buffer::kInput, .by_address = false, .source_chunk = 3, .sends = 1}));
}

TEST(RecordingPrims, RecvStoresAndDoesNotRead) {
  const Program program = record_verb([](auto& prims) { prims.recv(0, Buffer::kOutput, 2); });
  EXPECT_EQ(only_step(program),
            (Step{.target = Buffer::kOutput, .target_chunk = 2, .receives = 1}));
  EXPECT_THAT(program.recv_peers(only_step(program)), ElementsAre(0));
}

TEST(RecordingPrims, CopyHasNoPeers) {
  const Program program = record_verb(
      [](auto& prims) { prims.copy(Buffer::kInput, Buffer::kScratch, 1, Complete::kYes); });
  EXPECT_EQ(only_step(program), (Step{.source = Buffer::kInput,
                                      .target = Buffer::kScratch,
                                      .completes = true,
                                      .source_chunk = 1,
                                      .target_chunk = 1}));
}

TEST(RecordingPrims, CopySendStoresAndSends) {
  const Program program =
      record_verb([](auto& prims) { prims.copy_send(Buffer::kInput, Buffer::kOutput, 1, 3); });
  EXPECT_EQ(only_step(program), (Step{.source = Buffer::kInput,
                                      .target = Buffer::kOutput,
                                      .source_chunk = 1,
                                      .target_chunk = 1,
                                      .sends = 1}));
}

TEST(RecordingPrims, ForwardingVerbsListReceiversAfterSenders) {
  const Program forward = record_verb([](auto& prims) { prims.recv_send(0, 2); });
  EXPECT_EQ(only_step(forward), (Step{.receives = 1, .sends = 1}));
  EXPECT_THAT(forward.peers, ElementsAre(0, 2));
  EXPECT_THAT(forward.recv_peers(only_step(forward)), ElementsAre(0));
  EXPECT_THAT(forward.send_peers(only_step(forward)), ElementsAre(2));

  const Program keep =
      record_verb([](auto& prims) { prims.recv_copy_send(0, Buffer::kOutput, 3, 2); });
  EXPECT_EQ(only_step(keep),
            (Step{.target = Buffer::kOutput, .target_chunk = 3, .receives = 1, .sends = 1}));
}

TEST(RecordingPrims, ReducingVerbsReadTheOwnChunk) {
  const Program pass =
      record_verb([](auto& prims) { prims.recv_reduce_send(0, Buffer::kInput, 3, 2); });
  EXPECT_EQ(only_step(pass),
            (Step{.source = Buffer::kInput, .source_chunk = 3, .receives = 1, .sends = 1}));

  Step all = {.source = Buffer::kInput,
              .target = Buffer::kOutput,
              .source_chunk = 3,
              .target_chunk = 3,
              .receives = 1};
  const Program keep = record_verb([](auto& prims) {
    prims.recv_reduce_copy(0, Buffer::kInput, Buffer::kOutput, 3, Complete::kNo);
  });
  EXPECT_EQ(only_step(keep), all);
  all.sends = 1;
  all.completes = true;
  const Program both = record_verb([](auto& prims) {
    prims.recv_reduce_copy_send(0, Buffer::kInput, Buffer::kOutput, 3, 2, Complete::kYes);
  });
  EXPECT_EQ(only_step(both), all);
}

TEST(RecordingPrims, PeerListsKeepTheirOrderAndThePlaceOfTheOwnOperand) {
  const Program program = record_verb([](auto& prims) {
    prims.recv_reduce_copy(EveryoneElse{1, 4}, Buffer::kInput, Buffer::kOutput, 0, Complete::kYes);
  });
  EXPECT_THAT(program.recv_peers(only_step(program)), ElementsAre(0, 2, 3));
  EXPECT_EQ(only_step(program).own_position, 1);
}

TEST(RecordingPrims, PutsVerbsInTheLaneThatWasNamedLast) {
  RecordingPrims prims(0, 3, 3);
  prims.send(Buffer::kInput, 0, 1);
  EXPECT_TRUE(prims.lane(2));
  prims.recv(1, Buffer::kOutput, 1);
  EXPECT_TRUE(prims.lane(0));
  prims.send(Buffer::kInput, 2, 2);
  const Program program = std::move(prims).take();
  ASSERT_EQ(program.lanes.size(), 3U);
  ASSERT_EQ(program.lanes[0].steps.size(), 2U);
  EXPECT_EQ(program.lanes[1].steps.size(), 0U);
  ASSERT_EQ(program.lanes[2].steps.size(), 1U);
  EXPECT_EQ(program.step_count(), 3U);
  // Peers are in the order of recording, whatever the lane.
  EXPECT_THAT(program.peers, ElementsAre(1, 1, 2));
  EXPECT_THAT(program.recv_peers(program.lanes[2].steps[0]), ElementsAre(1));
  EXPECT_THAT(program.send_peers(program.lanes[0].steps[1]), ElementsAre(2));
}

TEST(AlgorithmTable, HasUniqueNamesThatAreFound) {
  std::set<std::string> names;
  for (const Algorithm& algorithm : algorithms()) {
    EXPECT_TRUE(names.insert(algorithm.name).second) << algorithm.name;
    EXPECT_EQ(find_algorithm(algorithm.name), &algorithm);
  }
  EXPECT_EQ(find_algorithm("no_such"), nullptr);
  EXPECT_EQ(find_algorithm(""), nullptr);
}

TEST(AlgorithmTable, HasAnAlgorithmForEveryCollective) {
  std::set<Collective> found;
  for (const Algorithm& algorithm : algorithms()) {
    found.insert(algorithm.collective);
  }
  EXPECT_EQ(found.size(), static_cast<size_t>(kCollectiveCount));
}

TEST(AlgorithmTable, RecordsACopyForARankAlone) {
  const std::vector<int> ring = {0};
  const Step copy = {.source = Buffer::kInput, .target = Buffer::kOutput, .completes = true};
  for (const Algorithm& algorithm : algorithms()) {
    const Program program = algorithm.record({.rank = 0, .ring = ring, .root = 0});
    EXPECT_EQ(only_step(program), copy) << algorithm.name;
    EXPECT_EQ(program.chunks, 1) << algorithm.name;
  }
  EXPECT_EQ(only_step(local_copy().record({.rank = 0, .ring = ring, .root = 0})), copy);
}

TEST(AlgorithmTable, RecordsNeighboursInRingOrder) {
  const std::vector<int> ring = {2, 0, 3, 1};
  const Program program =
      find_algorithm("ring_all_gather")->record({.rank = 3, .ring = ring, .root = 0});
  ASSERT_EQ(program.step_count(), 4U);
  const auto& steps = program.lanes[0].steps;
  EXPECT_THAT(program.send_peers(steps[0]), ElementsAre(1));
  EXPECT_THAT(program.recv_peers(steps[3]), ElementsAre(0));
  EXPECT_EQ(steps[0].source_chunk, 3);
  EXPECT_EQ(steps[1].target_chunk, 0);
  EXPECT_EQ(steps[2].target_chunk, 2);
  EXPECT_EQ(steps[3].target_chunk, 1);
}

}  // namespace
}  // namespace plexus
