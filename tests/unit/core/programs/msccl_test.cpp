// SPDX-License-Identifier: Apache-2.0
// Files in the format of MSCCL: the verdict that each sample must get, and the sentence for every
// rule of the format's executors that a file can break.
#include <gmock/gmock.h>

#include "core/programs/msccl_xml.hpp"
#include "tests/unit/core/programs/samples.hpp"

namespace plexus {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// ---- the samples ----

struct Proved {
  const char* name;
  int root;
  uint64_t slots_needed;
};

class MscclSamples : public testing::TestWithParam<Proved> {};

TEST_P(MscclSamples, AreProvedOutOfPlaceAndInPlace) {
  const Verdict verdict = judge(sample(GetParam().name));
  EXPECT_EQ(verdict.refusal, "");
  EXPECT_TRUE(verdict.proof.proved);
  EXPECT_TRUE(verdict.proof.out_of_place.proved) << verdict.proof.out_of_place.reason;
  EXPECT_TRUE(verdict.proof.in_place.proved) << verdict.proof.in_place.reason;
  EXPECT_EQ(verdict.proof.unfit, "");
  EXPECT_EQ(verdict.proof.root, GetParam().root);
  EXPECT_EQ(verdict.proof.any().slots_needed, GetParam().slots_needed);
  EXPECT_TRUE(verdict.proof.any().same_order);
}

INSTANTIATE_TEST_SUITE_P(All,
                         MscclSamples,
                         testing::Values(Proved{"ring-allreduce-4", 0, 2},
                                         Proved{"allpairs-allreduce-4", 0, 1},
                                         Proved{"hierarchical-alltoall-2x2", 0, 1},
                                         Proved{"tree-broadcast-6", 0, 1},
                                         Proved{"direct-reduce-scatter-3", 0, 1},
                                         Proved{"doubling-allgather-4", 0, 1},
                                         Proved{"chain-reduce-3", 2, 1},
                                         Proved{"chain-reduce-scatter-in-place-4", 0, 1},
                                         Proved{"swap-reduce-scatter-in-place-2", 0, 1},
                                         Proved{"tree-reduce-in-place-4", 1, 1},
                                         Proved{"stalls-exchange-2", 0, 1}));

TEST(Msccl, RefusesAContributionThatComesTwice) {
  EXPECT_THAT(judge(sample("wrong-twice-3")).refusal,
              HasSubstr("combines a value that is already complete with rank 2's chunk 2"));
}

TEST(Msccl, RefusesRanksThatReceiveBeforeTheySendAndNamesTheCycle) {
  EXPECT_EQ(judge(sample("deadlock-receive-first-2")).refusal,
            "deadlock: rank 0, lane 0, step 0: waits for a chunk from rank 1 forever; 2 of 2 lanes "
            "are blocked; a cycle: rank 0, lane 0, step 0 waits for rank 1, lane 0, step 0 waits "
            "for the first");
}

TEST(Msccl, RefusesAWaitForAStepThatIsNotAnnounced) {
  EXPECT_EQ(
      judge(sample("deadlock-unannounced-3")).refusal,
      "gpu 1, tb 1, step 0: waits forever (a deadlock): step 0 of tb 0 does not announce that "
      "it is done (hasdep=\"0\"), and no later one does");
}

TEST(Msccl, RefusesAChunkThatIsForwardedWithoutWaitingForIt) {
  EXPECT_THAT(judge(sample("race-forward-3")).refusal,
              AllOf(HasSubstr("rank 1, lane 1, step 0"), HasSubstr("unordered with it")));
}

TEST(Msccl, RefusesMatchingStepsOfOtherCounts) {
  EXPECT_EQ(judge(sample("leftover-pieces-2")).refusal,
            "gpu 0 sends message 0 to gpu 1 on channel 0 with cnt 2, where cnt 1 is received: "
            "matching steps differ in cnt");
}

// ---- the sentence that says what is wrong ----

TEST(Msccl, NamesWhatTheFirstWrongChunkHasAndLacks) {
  // rank 0 takes what arrives without its own contribution
  const std::string ring = replaced(sample("ring-allreduce-4"), "type=\"rrcs\"", "type=\"rcs\"");
  EXPECT_THAT(judge(ring).refusal, HasSubstr("3 of 4 contributions to chunk 1: has those of ranks "
                                             "1, 2, 3, lacks those of rank 0"));
}

TEST(Msccl, ProvesMessagesOfMoreChunksThanAConnectionHasSlots) {
  // 16 chunks each, of a buffer of 32
  std::string text = sample("stalls-exchange-2");
  text = replaced(text, "nchunksperloop=\"8\"", "nchunksperloop=\"32\"");
  for (int rank = 0; rank < 2; ++rank) {
    text = replaced(text, "o_chunks=\"8\"", "o_chunks=\"32\"");
    for (int step = 0; step < 2; ++step) {
      text = replaced(text, "cnt=\"4\"", "cnt=\"16\"");
      text = replaced(text, "off=\"4\"", "off=\"16\"");
    }
  }
  const Verdict verdict = judge(text);
  EXPECT_EQ(verdict.refusal, "");
  EXPECT_EQ(verdict.proof.any().slots_needed, 1U);
}

struct Defect {
  const char* name;
  const char* sample;
  const char* what;
  const char* by;
  const char* sentence;
};

std::string name_of_defect(const testing::TestParamInfo<Defect>& defect) {
  return defect.param.name;
}

class MscclDefects : public testing::TestWithParam<Defect> {};

TEST_P(MscclDefects, AreRefusedInWords) {
  const Defect& defect = GetParam();
  EXPECT_THAT(judge(replaced(sample(defect.sample), defect.what, defect.by)).refusal,
              HasSubstr(defect.sentence));
}

constexpr const char* kRing = "ring-allreduce-4";
constexpr const char* kPairs = "allpairs-allreduce-4";

INSTANTIATE_TEST_SUITE_P(
    All,
    MscclDefects,
    testing::Values(
        Defect{"no_xml", kRing, "</algo>", "", "line "},
        Defect{"no_algo", kRing, "<algo", "<other", "line "},
        Defect{"protocol", kRing, "proto=\"Simple\"", "proto=\"simple\"", "is not Simple"},
        Defect{"custom", kRing, "coll=\"allreduce\"", "coll=\"custom\"", "nothing can be proved"},
        Defect{"collective", kRing, "coll=\"allreduce\"", "coll=\"scan\"", "coll=\"scan\" is not"},
        Defect{"neither_form", kRing, "inplace=\"1\"", "inplace=\"0\"", "neither in place nor out"},
        Defect{"no_number", kRing, "ngpus=\"4\"", "ngpus=\"4x\"", "ngpus=\"4x\" is not a number"},
        Defect{"many_ranks", kRing, "ngpus=\"4\"", "ngpus=\"5\"", "<gpu id=\"4\"> is missing"},
        Defect{"twice", kRing, "gpu id=\"1\"", "gpu id=\"0\"", "<gpu id=\"0\"> is there twice"},
        Defect{"shares", "doubling-allgather-4", "nchunksperloop=\"8\"", "nchunksperloop=\"7\"",
               "does not give each of the 4 ranks as many chunks"},
        Defect{"block_twice", kPairs, "tb id=\"1\"", "tb id=\"0\"", "<tb id=\"0\"> is there twice"},
        Defect{"own_peer", kRing, "send=\"1\"", "send=\"0\"", "it is its own peer"},
        Defect{"peer", kRing, "send=\"1\"", "send=\"4\"",
               "send=\"4\" is not a number from -1 to 3"},
        Defect{"no_peer", kRing, "recv=\"3\"", "recv=\"-1\"", "no peer to receive from"},
        Defect{"type", kRing, "type=\"rrs\"", "type=\"ra\"", "type=\"ra\" is not one"},
        Defect{"bounds", kRing, "srcoff=\"3\" dstbuf=\"i\"", "srcoff=\"4\" dstbuf=\"i\"",
               "chunks 4 to 4 of 'i', which has 4"},
        Defect{"huge", kRing, "srcoff=\"3\" dstbuf=\"i\"", "srcoff=\"2147483647\" dstbuf=\"i\"",
               "of 'i', which has 4"},
        Defect{"buffer", kRing, "srcbuf=\"i\" srcoff=\"3\" dstbuf=\"i\"",
               "srcbuf=\"q\" srcoff=\"3\" dstbuf=\"i\"", "srcbuf=\"q\" is not i, o or s"},
        Defect{"count", kRing, "cnt=\"1\"", "cnt=\"0\"",
               "cnt=\"0\" is not a number from 1 to 65536"},
        Defect{"two_ends", kPairs, "<tb id=\"1\" send=\"2\" recv=\"2\"",
               "<tb id=\"1\" send=\"1\" recv=\"2\"", "lanes 0 and 1 both send to rank 1"},
        Defect{"no_step", kPairs, "depid=\"3\" deps=\"5\"", "depid=\"3\" deps=\"9\"",
               "waits for step 9 of tb 3, which is not there"},
        Defect{"no_block", kPairs, "depid=\"3\" deps=\"5\"", "depid=\"7\" deps=\"5\"",
               "waits for step 5 of tb 7, which is not there"},
        Defect{
            "stores_in_input", "chain-reduce-scatter-in-place-4", "inplace=\"1\" outofplace=\"0\"",
            "inplace=\"0\" outofplace=\"1\"",
            "rank 1, lane 0, step 2: stores in chunk 6 of the input, which belongs to the caller"},
        Defect{"in_place_wrong", "chain-reduce-scatter-in-place-4",
               "type=\"rrc\" srcbuf=\"i\" srcoff=\"4\"", "type=\"rrc\" srcbuf=\"i\" srcoff=\"2\"",
               "holds contributions to chunk 2 and to chunk 4"},
        Defect{"reduce_lacks_a_rank", "tree-reduce-in-place-4",
               "type=\"re\" srcbuf=\"s\" srcoff=\"0\" dstbuf=\"i\" dstoff=\"0\"",
               "type=\"re\" srcbuf=\"s\" srcoff=\"0\" dstbuf=\"s\" dstoff=\"0\"", "output chunk 0"},
        Defect{"own_block", kPairs, "depid=\"3\" deps=\"5\"", "depid=\"0\" deps=\"1\"",
               "output chunk 0"},
        Defect{"free_nop", kPairs, "cnt=\"0\" depid=\"0\" deps=\"1\"",
               "cnt=\"0\" depid=\"-1\" deps=\"-1\"", "a nop without a condition"},
        Defect{"nop_chain", kPairs, "cnt=\"1\" depid=\"2\" deps=\"1\"",
               "cnt=\"1\" depid=\"-1\" deps=\"-1\"", "follows a nop and has no condition"}),
    name_of_defect);

// ---- what programs say that the file does not ----

TEST(Msccl, ReadsTheOnlyBufferAsInputBeforeItIsWrittenAndAsOutputAfterwards) {
  auto file = parse_program_file(sample("ring-allreduce-4"));
  ASSERT_TRUE(file.has_value());
  const std::vector<Step>& steps = file.value().programs[0].lanes[0].steps;
  EXPECT_EQ(steps[0].source, Buffer::kInput);
  EXPECT_EQ(steps[3].source, Buffer::kInput);
  EXPECT_EQ(steps[3].target, Buffer::kOutput);
  EXPECT_TRUE(steps[3].completes);
  EXPECT_FALSE(steps[2].completes);
}

TEST(Msccl, SumsOfAReduceScatterInPlaceGoToScratchOutsideOfTheOwnShare) {
  auto file = parse_program_file(sample("chain-reduce-scatter-in-place-4"));
  ASSERT_TRUE(file.has_value());
  const Program& program = file.value().programs[1];
  EXPECT_EQ(program.scratch_chunks, 5);  // the file's, and two shares that are not the rank's
  for (const Step& step : program.lanes[0].steps) {
    EXPECT_TRUE(step.target != Buffer::kOutput || step.target_chunk < 2);
  }
  const Step& stored = program.lanes[0].steps[2];
  EXPECT_EQ(stored.target, Buffer::kScratch);
  EXPECT_EQ(stored.target_chunk, 1);
  const Step& sent = program.lanes[0].steps[4];
  EXPECT_EQ(sent.source, Buffer::kScratch);
  EXPECT_EQ(sent.source_chunk, 1);
}

TEST(Msccl, PartialSumsOfAReduceGoToScratchExceptAtTheRoot) {
  auto file = parse_program_file(sample("tree-reduce-in-place-4"));
  ASSERT_TRUE(file.has_value());
  for (const Program& program : file.value().programs) {
    EXPECT_EQ(program.scratch_chunks, 2);  // the file's, and the chunk that a rank stores in
    for (const Lane& lane : program.lanes) {
      for (const Step& step : lane.steps) {
        EXPECT_TRUE(program.rank == 1 || step.target != Buffer::kOutput);
        EXPECT_TRUE(program.rank == 1 || step.source != Buffer::kOutput);
      }
    }
  }
}

TEST(Msccl, AReduceOutOfPlaceMayStoreInOutputsThatItsRanksDoNotHave) {
  const Verdict verdict =
      judge(replaced(sample("chain-reduce-3"), R"(type="rrs" srcbuf="i" srcoff="0" dstbuf="i")",
                     R"(type="rrcs" srcbuf="i" srcoff="0" dstbuf="o")"));
  EXPECT_EQ(verdict.refusal, "");
  EXPECT_EQ(verdict.proof.root, 2);
  EXPECT_EQ(verdict.proof.unfit, "");
}

TEST(Msccl, CopiesWhatIsInItsPlaceAlreadyForCallsOutOfPlace) {
  auto file = parse_program_file(sample("doubling-allgather-4"));
  ASSERT_TRUE(file.has_value());
  const Program& program = file.value().programs[2];
  const std::vector<Step>& copies = program.lanes.back().steps;
  ASSERT_EQ(copies.size(), 2U);
  EXPECT_EQ((At{copies[1].source, copies[1].source_chunk}.chunk), 1);
  EXPECT_EQ(copies[1].target_chunk, 5);
}

TEST(Msccl, ThinksOfRanksThatCombineInDifferentOrders) {
  // every rank adds the others' chunks to its own as they come
  std::string text =
      "<algo name=\"one-step\" proto=\"LL\" nchannels=\"1\" nchunksperloop=\"1\" ngpus=\"3\" "
      "coll=\"allreduce\" inplace=\"0\" outofplace=\"1\">";
  for (int rank = 0; rank < 3; ++rank) {
    const int next = (rank + 1) % 3;
    const int last = (rank + 2) % 3;
    const auto step = [](int s, const char* rest) {
      return "<step s=\"" + std::to_string(s) + "\" " + rest + " cnt=\"1\" ";
    };
    const auto block = [](int id, int send, int recv) {
      return "<tb id=\"" + std::to_string(id) + "\" send=\"" + std::to_string(send) + "\" recv=\"" +
             std::to_string(recv) + "\" chan=\"0\">";
    };
    const std::string free = "depid=\"-1\" deps=\"-1\" hasdep=\"0\"/>";
    const std::string send = "type=\"s\" srcbuf=\"i\" srcoff=\"0\" dstbuf=\"s\" dstoff=\"0\"";
    text +=
        "<gpu id=\"" + std::to_string(rank) + "\" i_chunks=\"1\" o_chunks=\"1\" s_chunks=\"0\">";
    text += block(0, next, last) + step(0, send.c_str()) + free;
    text += step(1, "type=\"rrc\" srcbuf=\"i\" srcoff=\"0\" dstbuf=\"o\" dstoff=\"0\"");
    text += "depid=\"-1\" deps=\"-1\" hasdep=\"1\"/></tb>";
    text += block(1, last, next) + step(0, send.c_str()) + free;
    text += step(1, "type=\"rrc\" srcbuf=\"o\" srcoff=\"0\" dstbuf=\"o\" dstoff=\"0\"");
    text += "depid=\"0\" deps=\"1\" hasdep=\"0\"/></tb></gpu>";
  }
  const Verdict verdict = judge(text + "</algo>");
  EXPECT_EQ(verdict.refusal, "");
  EXPECT_FALSE(verdict.proof.out_of_place.same_order);
  EXPECT_THAT(verdict.proof.unfit, HasSubstr("combine in different orders"));
}

}  // namespace
}  // namespace plexus
