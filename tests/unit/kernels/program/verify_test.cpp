// SPDX-License-Identifier: Apache-2.0
// The verifier's error texts: handwritten programs with one defect each. mutation_test.cpp has
// thousands of defects, every_algorithm_test.cpp the correct programs.
#include "kernels/program/verify.hpp"

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/kernels/program/programs.hpp"

namespace plexus {
namespace {

using testing::HasSubstr;

void nothing(RecordingPrims& /*prims*/) {}

TEST(Verify, ReportsTheFewestSlotsThatDo) {
  const Programs programs = record("ring_all_gather", in_order(4));
  EXPECT_EQ(verify_programs(programs, Collective::kAllGather, 0, false, kSlots).slots_needed, 2U);
  EXPECT_EQ(reason(programs, Collective::kAllGather, false, 2), "");
  // Each rank waits until the next one takes its first chunk.
  EXPECT_EQ(
      reason(programs, Collective::kAllGather, false, 1),
      "rank 0, lane 0, step 1: waits for a free slot to rank 1 forever; 4 of 4 lanes are blocked "
      "with 1 slots; a cycle: rank 0, lane 0, step 1 waits for rank 1, lane 0, step 1 waits for "
      "rank 2, lane 0, step 1 waits for rank 3, lane 0, step 1 waits for the first");
}

/// All-reduce of two ranks: rank 1 sends its input, rank 0 reduces in lane 0 and sends the result
/// in lane 1.
Programs make_two_lanes(After after) {
  Programs programs = make_programs(1, {[](RecordingPrims& prims) {
                                          prims.lane(0);
                                          prims.recv_reduce_copy(1, Buffer::kInput, Buffer::kOutput,
                                                                 0, Complete::kYes);
                                          prims.lane(1);
                                          prims.send(Buffer::kOutput, 0, 1);
                                        },
                                        [](RecordingPrims& prims) {
                                          prims.lane(0);
                                          prims.send(Buffer::kInput, 0, 0);
                                          prims.lane(1);
                                          prims.recv(0, Buffer::kOutput, 0);
                                        }});
  programs[0].lanes[1].steps[0].after = after;
  return programs;
}

TEST(Verify, TakesAfterAndDataAsOrderBetweenLanes) {
  // In place, rank 1's lane 1 overwrites what its lane 0 sent; that is ordered, because the result
  // depends on it.
  EXPECT_EQ(reason(make_two_lanes({.lane = 0, .step = 0}), Collective::kAllReduce, false), "");
  EXPECT_EQ(reason(make_two_lanes({.lane = 0, .step = 0}), Collective::kAllReduce, true), "");
}

// ---- Order and slots ----

TEST(Verify, RejectsAfterThatIsMissing) {
  EXPECT_THAT(reason(make_two_lanes({}), Collective::kAllReduce),
              HasSubstr("which was never written"));
}

/// Rank 0 copies its input in lane 0 and sends the copy in lane 1.
Programs make_copy_and_send(After after) {
  Programs programs =
      make_programs(1, {[](RecordingPrims& prims) {
                          prims.lane(0);
                          prims.copy(Buffer::kInput, Buffer::kOutput, 0);
                          prims.lane(1);
                          prims.send(Buffer::kOutput, 0, 1);
                        },
                        [](RecordingPrims& prims) { prims.recv(0, Buffer::kOutput, 0); }});
  programs[0].lanes[1].steps[0].after = after;
  return programs;
}

TEST(Verify, RejectsOrderThatOnlyThisInterleavingHas) {
  EXPECT_EQ(reason(make_copy_and_send({.lane = 0, .step = 0}), Collective::kBroadcast), "");
  EXPECT_EQ(reason(make_copy_and_send({}), Collective::kBroadcast),
            "rank 0, lane 1, step 0: reads output chunk 0, which lane 0 writes unordered with it");
}

TEST(Verify, RejectsLanesThatWriteWhatAnotherReadsInNoOrder) {
  // In place: lane 0 sends the input while lane 1 writes the result there.
  const Programs programs = make_programs(
      1, {[](RecordingPrims& prims) {
            prims.lane(0);
            prims.send(Buffer::kInput, 0, 1, ByAddress::kNo);
            prims.lane(1);
            prims.recv_reduce_copy(1, Buffer::kInput, Buffer::kOutput, 0, Complete::kYes);
          },
          [](RecordingPrims& prims) {
            prims.send(Buffer::kInput, 0, 0, ByAddress::kNo);
            prims.recv_reduce_copy(EveryoneElse{1, 2}, Buffer::kInput, Buffer::kOutput, 0,
                                   Complete::kYes);
          }});
  EXPECT_EQ(reason(programs, Collective::kAllReduce, false), "");
  EXPECT_EQ(reason(programs, Collective::kAllReduce, true),
            "rank 0, lane 1, step 0: writes output chunk 0, which lane 0 reads unordered with it");
}

TEST(Verify, RejectsLanesThatBothWriteInNoOrder) {
  const Programs programs =
      make_programs(1, {[](RecordingPrims& prims) { prims.send(Buffer::kInput, 0, 1); },
                        [](RecordingPrims& prims) {
                          prims.lane(0);
                          prims.recv(0, Buffer::kOutput, 0);
                          prims.lane(1);
                          prims.recv(2, Buffer::kOutput, 0);
                        },
                        [](RecordingPrims& prims) { prims.send(Buffer::kInput, 0, 1); }});
  EXPECT_THAT(reason(programs, Collective::kAllReduce), HasSubstr("writes unordered with it"));
}

TEST(Verify, RejectsAfterOfItsOwnLaneAndOfStepsThatAreNot) {
  for (const After after : {After{1, 0}, After{0, 1}, After{2, 0}, After{0, -1}}) {
    EXPECT_THAT(reason(make_copy_and_send(after), Collective::kBroadcast),
                HasSubstr("not a step of another lane"));
  }
}

TEST(Verify, RejectsDeadlockOfReceiversThatWaitForEachOther) {
  const auto body = [](int peer) {
    return [peer](RecordingPrims& prims) {
      prims.recv_reduce_copy(peer, Buffer::kInput, Buffer::kOutput, 0, Complete::kYes);
      prims.send(Buffer::kInput, 0, peer);
    };
  };
  EXPECT_EQ(
      reason(make_programs(1, {body(1), body(0)}), Collective::kAllReduce),
      "rank 0, lane 0, step 0: waits for a chunk from rank 1 forever; 2 of 2 lanes are "
      "blocked with 8 slots; a cycle: rank 0, lane 0, step 0 waits for rank 1, lane 0, step 0 "
      "waits for the first");
}

TEST(Verify, RejectsLanesThatWaitForEachOther) {
  Programs programs = make_copy_and_send({.lane = 0, .step = 0});
  programs[0].lanes[0].steps[0].after = {.lane = 1, .step = 0};
  EXPECT_THAT(reason(programs, Collective::kBroadcast),
              HasSubstr("waits for step 0 of lane 1 forever"));
}

/// All-reduce of two ranks that send all their chunks before they receive any.
Programs make_bulk_exchange(int chunks) {
  const auto body = [chunks](int rank) {
    return [rank, chunks](RecordingPrims& prims) {
      const EveryoneElse other{rank, 2};
      for (int chunk = 0; chunk < chunks; ++chunk) {
        prims.send(Buffer::kInput, chunk, other);
      }
      for (int chunk = 0; chunk < chunks; ++chunk) {
        prims.recv_reduce_copy(other, Buffer::kInput, Buffer::kOutput, chunk, Complete::kYes);
      }
    };
  };
  return make_programs(chunks, {body(0), body(1)});
}

TEST(Verify, RejectsSendersThatFillMoreThanTheSlots) {
  const VerifyResult fits =
      verify_programs(make_bulk_exchange(8), Collective::kAllReduce, 0, false, 8);
  EXPECT_EQ(fits.reason, "");
  EXPECT_EQ(fits.slots_needed, 8U);
  EXPECT_EQ(
      reason(make_bulk_exchange(9), Collective::kAllReduce, false, 8),
      "rank 0, lane 0, step 8: waits for a free slot to rank 1 forever; 2 of 2 lanes are "
      "blocked with 8 slots; a cycle: rank 0, lane 0, step 8 waits for rank 1, lane 0, step 8 "
      "waits for the first");
}

TEST(Verify, RejectsChunksThatNobodyReceives) {
  const Programs programs = make_programs(
      1, {[](RecordingPrims& prims) { prims.copy_send(Buffer::kInput, Buffer::kOutput, 0, 1); },
          [](RecordingPrims& prims) { prims.recv(0, Buffer::kOutput, 0); }});
  Programs more = programs;
  more[0].lanes[0].steps.push_back(more[0].lanes[0].steps[0]);
  more[0].lanes[0].steps[1].target = Buffer::kNone;
  EXPECT_EQ(reason(programs, Collective::kBroadcast), "");
  EXPECT_THAT(reason(more, Collective::kBroadcast),
              HasSubstr("rank 0 sends 2 chunks to rank 1, which receives 1"));
}

TEST(Verify, RejectsConnectionWhoseEndTwoLanesUse) {
  const Programs programs =
      make_programs(2, {[](RecordingPrims& prims) {
                          prims.copy_send(Buffer::kInput, Buffer::kOutput, 0, 1);
                          prims.lane(1);
                          prims.copy_send(Buffer::kInput, Buffer::kOutput, 1, 1);
                        },
                        [](RecordingPrims& prims) {
                          prims.recv(0, Buffer::kOutput, 0);
                          prims.recv(0, Buffer::kOutput, 1);
                        }});
  EXPECT_EQ(reason(programs, Collective::kBroadcast),
            "rank 0: lanes 0 and 1 both send to rank 1: which chunk each gets depends on timing");
}

// ---- SymbolicMemory ----

/// All-reduce of two ranks that send their input and overwrite it with the result.
Programs make_exchange(ByAddress by_address) {
  const auto body = [by_address](int rank) {
    return [rank, by_address](RecordingPrims& prims) {
      const EveryoneElse other{rank, 2};
      prims.send(Buffer::kInput, 0, other, by_address);
      prims.recv_reduce_copy(other, Buffer::kInput, Buffer::kOutput, 0, Complete::kYes);
    };
  };
  return make_programs(1, {body(0), body(1)});
}

TEST(Verify, RejectsChunkSentByAddressThatIsOverwrittenBeforeItIsTaken) {
  EXPECT_EQ(reason(make_exchange(ByAddress::kYes), Collective::kAllReduce, false), "");
  EXPECT_EQ(reason(make_exchange(ByAddress::kNo), Collective::kAllReduce, true), "");
  EXPECT_EQ(
      reason(make_exchange(ByAddress::kYes), Collective::kAllReduce, true),
      "rank 1, lane 0, step 1: overwrites output chunk 0, which rank 0 may still read in place");
}

/// All-reduce in which rank 0 makes the result for itself and for rank 1, and rank 2 its own. Rank
/// 1 sends its input first to rank `first`.
Programs make_delivery(int first) {
  return make_programs(1, {[](RecordingPrims& prims) {
                             prims.send(Buffer::kInput, 0, 2, ByAddress::kNo);
                             prims.recv_reduce_copy_send(EveryoneElse{0, 3}, Buffer::kInput,
                                                         Buffer::kOutput, 0, 1, Complete::kYes);
                           },
                           [first](RecordingPrims& prims) {
                             prims.send(Buffer::kInput, 0, first, ByAddress::kNo);
                             prims.send(Buffer::kInput, 0, 2 - first, ByAddress::kNo);
                             prims.recv(0, Buffer::kOutput, 0);
                           },
                           [](RecordingPrims& prims) {
                             prims.send(Buffer::kInput, 0, 0, ByAddress::kNo);
                             prims.recv_reduce_copy(EveryoneElse{2, 3}, Buffer::kInput,
                                                    Buffer::kOutput, 0, Complete::kYes);
                           }});
}

TEST(Verify, RejectsResultThatItsSenderMayStoreWhereTheReceiverStillReads) {
  EXPECT_EQ(reason(make_delivery(2), Collective::kAllReduce, true), "");
  EXPECT_EQ(reason(make_delivery(0), Collective::kAllReduce, false), "");
  EXPECT_EQ(reason(make_delivery(0), Collective::kAllReduce, true),
            "rank 1, lane 0, step 2: its sender, which may store the result there, writes output "
            "chunk 0, which lane 0 reads unordered with it");
}

TEST(Verify, RejectsResultThatItsReceiverDoesNotStoreAtItsPlace) {
  Programs programs = make_delivery(2);
  programs[1].lanes[0].steps.back().target = Buffer::kScratch;
  programs[1].lanes[0].steps.push_back({.source = Buffer::kScratch, .target = Buffer::kOutput});
  for (Program& program : programs) {
    program.scratch_chunks = 1;
  }
  EXPECT_EQ(reason(programs, Collective::kAllReduce),
            "rank 1, lane 0, step 2: does not store the result, chunk 0, at its place");
}

TEST(Verify, DoesNotTakeAFreeSlotForProofThatAChunkWasTaken) {
  // Rank 0 sends output 0 by address, sends again, and overwrites output 0. With one slot the
  // second chunk waits until the first one is taken; but programs must also be right with more
  // slots.
  const Programs programs =
      make_programs(2, {[](RecordingPrims& prims) {
                          prims.copy_send(Buffer::kInput, Buffer::kOutput, 0, 1);
                          prims.copy_send(Buffer::kInput, Buffer::kOutput, 1, 1);
                          prims.recv(2, Buffer::kOutput, 0);
                        },
                        [](RecordingPrims& prims) {
                          prims.recv(0, Buffer::kOutput, 0);
                          prims.recv(0, Buffer::kOutput, 1);
                        },
                        [](RecordingPrims& prims) { prims.send(Buffer::kInput, 0, 0); }});
  EXPECT_EQ(
      reason(programs, Collective::kAllReduce, false, 1),
      "rank 0, lane 0, step 2: overwrites output chunk 0, which rank 1 may still read in place");
}

TEST(Verify, RejectsReadOfChunkThatNobodyWrote) {
  const Programs programs =
      make_programs(1, {[](RecordingPrims& prims) { prims.send(Buffer::kOutput, 0, 1); },
                        [](RecordingPrims& prims) { prims.recv(0, Buffer::kOutput, 0); }});
  for (const bool in_place :
       {false, true}) {  // in place the input is in that buffer, out of place it is not
    EXPECT_EQ(reason(programs, Collective::kBroadcast, in_place),
              "rank 0, lane 0, step 0: reads output chunk 0, which was never written");
  }
}

TEST(Verify, RejectsReadOfInputThatTheOutputOverwroteInPlace) {
  Programs programs = make_exchange(ByAddress::kNo);
  for (Program& program : programs) {
    std::swap(program.lanes[0].steps[0], program.lanes[0].steps[1]);
  }
  EXPECT_THAT(reason(programs, Collective::kAllReduce, true), HasSubstr("waits for a chunk"));
  std::swap(programs[0].lanes[0].steps[0], programs[0].lanes[0].steps[1]);
  EXPECT_EQ(reason(programs, Collective::kAllReduce, false), "");
  EXPECT_EQ(reason(programs, Collective::kAllReduce, true),
            "rank 1, lane 0, step 1: reads input chunk 0 after the output was written there");
}

TEST(Verify, RejectsStoresThatAreOfNoUse) {
  const auto root = [](RecordingPrims& prims) {
    prims.copy_send(Buffer::kInput, Buffer::kOutput, 0, 1);
  };
  const auto leaf = [](RecordingPrims& prims) { prims.recv(0, Buffer::kOutput, 0); };
  Programs programs = make_programs(1, {root, leaf});
  programs[0].lanes[0].steps[0].by_address = false;
  programs[0].lanes[0].steps.push_back({.source = Buffer::kInput, .target = Buffer::kOutput});
  EXPECT_THAT(reason(programs, Collective::kBroadcast),
              HasSubstr("stores in output chunk 0 the value that it already holds"));

  Programs ring = record("ring_all_reduce", in_order(3));
  ring[0].lanes[0].steps[1].target = Buffer::kOutput;  // stores a partial sum that is never used
  ring[0].lanes[0].steps[1].target_chunk = ring[0].lanes[0].steps[1].source_chunk;
  EXPECT_THAT(reason(ring, Collective::kAllReduce),
              HasSubstr("whose value was stored and never read"));
}

// ---- Scratch ----

/// Broadcast through scratch: rank 0 stores its input there and sends it from there.
Programs make_scratch(ByAddress by_address, bool two_lanes) {
  Programs programs =
      make_programs(1, {[&](RecordingPrims& prims) {
                          prims.copy(Buffer::kInput, Buffer::kScratch, 0);
                          prims.copy(Buffer::kScratch, Buffer::kOutput, 0);
                          prims.lane(two_lanes ? 1 : 0);
                          prims.send(Buffer::kScratch, 0, 1, by_address);
                        },
                        [](RecordingPrims& prims) { prims.recv(0, Buffer::kOutput, 0); }});
  for (Program& program : programs) {
    program.scratch_chunks = 1;
  }
  if (two_lanes) {
    programs[0].lanes[1].steps[0].after = {.lane = 0, .step = 0};
  }
  return programs;
}

TEST(Verify, RejectsScratchThatTheNextLoopOverwrites) {
  EXPECT_EQ(reason(make_scratch(ByAddress::kNo, false), Collective::kBroadcast), "");
  EXPECT_THAT(reason(make_scratch(ByAddress::kYes, false), Collective::kBroadcast),
              HasSubstr("passes the address of a chunk of scratch"));
  EXPECT_THAT(reason(make_scratch(ByAddress::kNo, true), Collective::kBroadcast),
              HasSubstr("may be one loop ahead"));
}

TEST(Verify, RejectsScratchThatIsNotDeclared) {
  Programs programs = make_scratch(ByAddress::kNo, false);
  programs[0].scratch_chunks = programs[1].scratch_chunks = 0;
  EXPECT_THAT(reason(programs, Collective::kBroadcast),
              HasSubstr("scratch, which this rank does not have"));
}

TEST(Verify, RejectsScratchThatHoldsAnotherBlockThanItSays) {
  Programs programs = record("pat_reduce_scatter", in_order(6));
  EXPECT_EQ(reason(programs, Collective::kReduceScatter), "");
  std::vector<int>& blocks = programs[0].scratch_blocks;
  ASSERT_FALSE(blocks.empty());
  blocks[0] = (blocks[0] + 1) % 6;
  EXPECT_THAT(reason(programs, Collective::kReduceScatter), HasSubstr("have different lengths"));
  blocks.clear();
  EXPECT_THAT(reason(programs, Collective::kReduceScatter), HasSubstr("as block -1"));
}

// ---- Values ----

TEST(Verify, RejectsContributionThatIsMissing) {
  Programs programs = record("chain_reduce", in_order(3));
  // Rank 2 forwards without its own contribution.
  programs[2].lanes[0].steps[0].source = Buffer::kNone;
  EXPECT_EQ(
      reason(programs, Collective::kReduce),
      "rank 0, lane 0, step 0: completes a value that is 2 of 3 contributions to chunk 0: has "
      "those of ranks 0, 1, lacks those of rank 2");
}

TEST(Verify, RejectsContributionThatIsInTwice) {
  // From 1 to 2, back to 1, which adds its own contribution again, and to 0, with or without its
  // own.
  const auto twice = [](RecordingPrims& prims) {
    prims.send(Buffer::kInput, 0, 2);
    prims.recv_reduce_send(2, Buffer::kInput, 0, 0);
  };
  const auto back = [](RecordingPrims& prims) { prims.recv_reduce_send(1, Buffer::kInput, 0, 1); };
  Programs programs = make_programs(1, {[](RecordingPrims& prims) {
                                          prims.recv_reduce_copy(1, Buffer::kInput, Buffer::kOutput,
                                                                 0, Complete::kYes);
                                        },
                                        twice, back});
  EXPECT_THAT(reason(programs, Collective::kReduce),
              HasSubstr("completes a value that is 4 contributions of 3 ranks"));
  programs[0].lanes[0].steps[0].source = Buffer::kNone;
  EXPECT_THAT(reason(programs, Collective::kReduce),
              HasSubstr("completes a value that is rank 1's chunk 0 twice"));
}

TEST(Verify, RejectsValuesThatAreCompletedNeverEarlyOrTwice) {
  const Programs programs = record("ring_all_reduce", in_order(3));
  Programs never = programs;
  never[1].lanes[0].steps[2].completes = false;
  EXPECT_THAT(reason(never, Collective::kAllReduce), HasSubstr("not marked complete, expected"));
  Programs early = programs;
  early[1].lanes[0].steps[1].completes = true;
  EXPECT_THAT(reason(early, Collective::kAllReduce), HasSubstr("completes a value that is"));
  Programs twice = programs;
  twice[1].lanes[0].steps[3].completes = true;
  EXPECT_THAT(reason(twice, Collective::kAllReduce),
              HasSubstr("completes a value that is already complete"));
}

TEST(Verify, RejectsAllReduceThatCombinesInAnotherOrderOnSomeRank) {
  Programs programs = record("all_pairs_all_reduce", in_order(3));
  programs[2].lanes[0].steps[1].own_position = 0;
  EXPECT_EQ(reason(programs, Collective::kAllReduce),
            "rank 2: output chunk 0 is combined in another order than on rank 0, so that its bits "
            "may differ");
}

TEST(Verify, RejectsChunkThatGoesToTheWrongPlace) {
  Programs programs = record("pairwise_all_to_all", in_order(3));
  std::swap(programs[1].lanes[1].steps[0].target_chunk, programs[1].lanes[1].steps[1].target_chunk);
  EXPECT_EQ(reason(programs, Collective::kAllToAll),
            "rank 1: output chunk 0 holds rank 2's chunk 1, expected rank 0's chunk 1");
}

TEST(Verify, RejectsOutputThatIsLeftUnwritten) {
  Programs programs = record("direct_gather", in_order(3));
  programs[0].lanes[0].steps.erase(programs[0].lanes[0].steps.begin());
  for (const bool in_place : {false, true}) {
    EXPECT_EQ(reason(programs, Collective::kGather, in_place),
              "rank 0: output chunk 0 holds nothing, expected rank 0's chunk 0");
  }
}

TEST(Verify, RejectsCombiningInACollectiveThatReducesNothing) {
  Programs programs = record("ring_all_gather", in_order(3));
  programs[0].lanes[0].steps[1].source = Buffer::kInput;
  EXPECT_THAT(reason(programs, Collective::kAllGather),
              HasSubstr("combines chunks in a collective without a reduction"));
}

// ---- Verbs that no executor runs ----

struct Misshapen {
  const char* what;
  std::function<void(Programs&)> change;
};

TEST(Verify, RejectsVerbsThatNoExecutorRuns) {
  const auto step = [](Programs& programs, size_t at) -> Step& {
    return programs[1].lanes[0].steps[at];
  };
  const Misshapen cases[] = {
      {"names peers that the program does not list",
       [&](Programs& p) { step(p, 0).peers_first = 99; }},
      {"names peers that the program does not list", [&](Programs& p) { step(p, 0).sends = -1; }},
      {"sends to rank 1, which is not a peer", [&](Programs& p) { p[1].peers[0] = 1; }},
      {"sends to rank 3, which is not a peer", [&](Programs& p) { p[1].peers[0] = 3; }},
      {"receives from rank 0 twice in one step",
       [&](Programs& p) { p[1].peers[3] = p[1].peers[2]; }},
      {"reads input chunk 1 of 1", [&](Programs& p) { step(p, 0).source_chunk = 1; }},
      {"writes output chunk -1 of 1", [&](Programs& p) { step(p, 1).target_chunk = -1; }},
      {"has neither a source nor a sender",
       [&](Programs& p) { step(p, 0).source = Buffer::kNone; }},
      {"has neither a target nor a receiver",
       [&](Programs& p) { step(p, 1).target = Buffer::kNone; }},
      {"writes to the input", [&](Programs& p) { step(p, 1).target = Buffer::kInput; }},
      {"several senders without an operand of its own",
       [&](Programs& p) { step(p, 1).source = Buffer::kNone; }},
      {"places its own operand at position 3 of 2",
       [&](Programs& p) { step(p, 1).own_position = 3; }},
      {"completes a value in place", [&](Programs& p) { step(p, 0).completes = true; }},
      {"claims to be rank 0 of 3", [&](Programs& p) { p[1].rank = 0; }},
      {"rank 1: 2 chunks and 0 of scratch, but rank 0 has 1 and 0",
       [&](Programs& p) { p[1].chunks = 2; }},
  };
  for (const Misshapen& one : cases) {
    Programs programs = record("all_pairs_all_reduce", in_order(3));
    one.change(programs);
    EXPECT_THAT(reason(programs, Collective::kAllReduce), HasSubstr(one.what));
  }
}

TEST(Verify, RejectsChunksOfUnequalLength) {
  // In the last loop the chunks of an all-reduce may be shorter, or empty and skipped.
  Programs programs = record("ring_all_reduce", in_order(3));
  Step& step = programs[0].lanes[0].steps[2];
  step.target_chunk = (step.source_chunk + 1) % 3;
  EXPECT_THAT(reason(programs, Collective::kAllReduce), HasSubstr("which may have another length"));
}

TEST(Verify, RejectsBuffersThatARankDoesNotHave) {
  Programs programs = record("chain_reduce", in_order(3));
  programs[1].lanes[0].steps[0].target = Buffer::kOutput;
  EXPECT_THAT(reason(programs, Collective::kReduce),
              HasSubstr("writes output, which this rank does not have"));
}

TEST(Verify, RejectsMoreOperandsThanAVerbTakes) {
  const VerifyResult result = verify({.algorithm = find_algorithm("all_pairs_all_reduce"),
                                      .nranks = kOperandsMax + 1,
                                      .root = 0,
                                      .in_place = false});
  EXPECT_THAT(result.reason, HasSubstr("combines 66 operands, at most 65 are supported"));
}

TEST(Verify, RejectsRootsPairsAndSlotsThatAreNone) {
  EXPECT_THAT(
      verify(
          {.algorithm = find_algorithm("chain_reduce"), .nranks = 2, .root = 2, .in_place = false})
          .reason,
      HasSubstr("root 2 is not one of the 2 ranks"));
  EXPECT_THAT(reason({}, Collective::kAllReduce), HasSubstr("no programs"));
  EXPECT_THAT(reason(make_exchange(ByAddress::kYes), Collective::kAllReduce, false, 0),
              HasSubstr("needs at least one slot"));
  EXPECT_THAT(reason(make_programs(1, {nothing, nothing, nothing}), Collective::kSend),
              HasSubstr("2 ranks, not 3"));
  EXPECT_THAT(reason(make_programs(2, {nothing, nothing, nothing}), Collective::kAllGather),
              HasSubstr("2 chunks for 3 ranks"));
}

/// Bruck's all-gather of 5 ranks, in messages of up to 2 chunks. Lane 0: copy, 1 chunk, 2 chunks, 1
/// chunk; lane 1 receives them.
Programs joined_all_gather() {
  const std::vector<int> ring = in_order(5);
  Programs programs;
  for (const int rank : ring) {
    programs.push_back(
        find_algorithm("bruck_all_gather")->record({.rank = rank, .ring = ring, .joins = true}));
  }
  return programs;
}

TEST(VerifyMessages, ProvesThoseOfSeveralChunksAndCountsThemAsOne) {
  const Programs programs = joined_all_gather();
  EXPECT_EQ(chunks_of_longest_message(programs), 2U);
  const VerifyResult result = verify_programs(programs, Collective::kAllGather, 0, false, kSlots);
  EXPECT_EQ(result.reason, "");
  EXPECT_EQ(result.chunks_moved, 4);
  EXPECT_EQ(result.slots_needed, 1U);
}

TEST(VerifyMessages, RejectsEndsThatDivideThemDifferently) {
  Programs programs = joined_all_gather();
  std::vector<Step>& receives = programs[0].lanes[1].steps;
  ASSERT_TRUE(receives[1].with_next);
  receives[1].with_next = false;
  EXPECT_EQ(reason(programs, Collective::kAllGather),
            "message 0 from rank 2 to rank 0 has 2 chunks where it is sent, and 1 where it is "
            "received");
}

TEST(VerifyMessages, RejectsThoseThatNoExecutorCarries) {
  const auto refusal = [](const auto& spoil) {
    Programs programs = joined_all_gather();
    std::vector<Step>& sends = programs[0].lanes[0].steps;
    EXPECT_TRUE(sends[2].with_next);
    spoil(programs[0], sends);
    return reason(programs, Collective::kAllGather);
  };
  using Steps = std::vector<Step>;
  EXPECT_EQ(refusal([](Program&, Steps& sends) { sends[3].peers_first = sends[1].peers_first; }),
            "rank 0, lane 0, step 3: continues a message with other peers");
  EXPECT_EQ(refusal([](Program&, Steps& sends) { sends[3].after = {.lane = 1, .step = 0}; }),
            "rank 0, lane 0, step 3: waits in the middle of a message: only its first step may");
  EXPECT_EQ(refusal([](Program&, Steps& sends) { sends[3].by_address = true; }),
            "rank 0, lane 0, step 3: sends by address a chunk of a message of several");
  EXPECT_EQ(refusal([](Program&, Steps& sends) { sends.back().with_next = true; }),
            "rank 0, lane 0, step 4: its message continues behind the last step");
  EXPECT_EQ(refusal([](Program&, Steps& sends) { std::swap(sends[0], sends[3]); }),
            "rank 0, lane 0, step 3: continues a message, and has none");
  EXPECT_THAT(refusal([](Program&, Steps& sends) { sends[3].source_chunk = 9; }),
              HasSubstr("reads output chunk 9 of 5"));
  EXPECT_THAT(refusal([](Program&, Steps& sends) {
                sends[3] = sends[2], sends[3].with_next = false, sends[3].after = {};
              }),
              HasSubstr("output chunk"))
      << "a chunk twice";
}

}  // namespace
}  // namespace plexus
