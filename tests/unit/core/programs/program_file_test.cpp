// SPDX-License-Identifier: Apache-2.0
// Program files as JSON: every algorithm of the table survives being written and read, and what is
// not a program is refused in words.
#include "core/programs/program_file.hpp"

#include <gmock/gmock.h>

#include "core/base/file.hpp"
#include "core/programs/export.hpp"
#include "core/programs/program_json.hpp"
#include "tests/unit/core/programs/samples.hpp"

namespace plexus {
namespace {

using testing::HasSubstr;

std::vector<const Algorithm*> exportable() {
  std::vector<const Algorithm*> all;
  for (const Algorithm& row : algorithms()) {
    if (row.network_cost == nullptr && !is_point_to_point(row.collective)) {
      all.push_back(&row);
    }
  }
  return all;
}

TEST(ProgramFile, IsProvedInBothFormsForEveryAlgorithmOfTheTable) {
  for (const Algorithm* const algorithm : exportable()) {
    for (const int nranks : {2, 5, 8}) {
      const int root = is_rooted(algorithm->collective) ? nranks - 1 : 0;
      const auto exported = export_program(*algorithm, {.nranks = nranks, .root = root});
      ASSERT_TRUE(exported.has_value()) << algorithm->name;
      const Verdict verdict = judge(format_program_json(exported.value()));
      EXPECT_EQ(verdict.refusal, "") << algorithm->name << " " << nranks;
      EXPECT_EQ(verdict.proof.unfit, "") << algorithm->name << " " << nranks;
      EXPECT_EQ(verdict.proof.root, root) << algorithm->name;
    }
  }
}

TEST(ProgramFile, IsProvedWithMessagesOfSeveralChunksForEveryAlgorithmThatHasThem) {
  int exports = 0;
  for (const Algorithm* const algorithm : exportable()) {
    for (const int nranks : {2, 6, 8, 33}) {
      const auto exported = export_program(*algorithm, {.nranks = nranks, .joins = true});
      ASSERT_EQ(exported.has_value(), algorithm->joined.rounds != nullptr) << algorithm->name;
      if (exported.has_error()) {
        EXPECT_THAT(exported.error().message(), HasSubstr("without --joined"));
        continue;
      }
      ++exports;
      const Verdict verdict = judge(format_program_json(exported.value()));
      EXPECT_EQ(verdict.refusal, "") << algorithm->name << " " << nranks;
      EXPECT_EQ(verdict.proof.unfit, "") << algorithm->name << " " << nranks;
      EXPECT_EQ(verdict.proof.any().rounds, algorithm->joined.rounds(nranks)) << algorithm->name;
    }
  }
  EXPECT_GE(exports, 6 * 4);
}

TEST(ProgramFile, IsTheSameAfterItWasWrittenAndRead) {
  for (const char* const name : {"ring-allreduce-4", "allpairs-allreduce-4", "chain-reduce-3",
                                 "direct-reduce-scatter-3", "hierarchical-alltoall-2x2"}) {
    auto file = parse_program_file(sample(name));
    ASSERT_TRUE(file.has_value()) << name;
    const std::string text = format_program_json(file.value());
    auto again = parse_program_file(text);
    ASSERT_TRUE(again.has_value()) << again.error().message();
    EXPECT_EQ(format_program_json(again.value()), text);
    EXPECT_EQ(again.value().programs[1].step_count(), file.value().programs[1].step_count());
    EXPECT_EQ(again.value().protocol, file.value().protocol);
  }
}

struct Defect {
  const char* name;
  const char* what;
  const char* by;
  const char* sentence;
};

std::string name_of_defect(const testing::TestParamInfo<Defect>& defect) {
  return defect.param.name;
}

class ProgramDefects : public testing::TestWithParam<Defect> {};

TEST_P(ProgramDefects, AreRefusedInWords) {
  const auto ring = export_program(*find_algorithm("ring_all_reduce"), {.nranks = 3});
  ASSERT_TRUE(ring.has_value());
  const std::string text =
      replaced(format_program_json(ring.value()), GetParam().what, GetParam().by);
  EXPECT_THAT(judge(text).refusal, HasSubstr(GetParam().sentence));
}

INSTANTIATE_TEST_SUITE_P(
    All,
    ProgramDefects,
    testing::Values(
        Defect{"no_json", "{", "", "neither JSON nor XML"},
        Defect{"format", "plexus-program", "other", "expected 'plexus-program'"},
        Defect{"version", "\"version\": 1", "\"version\": 2", "of version 2"},
        Defect{"unknown", "\"chunks\": 3", "\"chunk\": 3", "unknown member 'chunk'"},
        Defect{"missing", " \"name\": \"ring_all_reduce\",\n", "", "'name' is missing"},
        Defect{"negative", "\"chunks\": 3", "\"chunks\": -3", "'chunks' is -3"},
        Defect{"text", "\"chunks\": 3", "\"chunks\": \"3\"", "'chunks' is \"3\""},
        Defect{"ranks", "\"nranks\": 3", "\"nranks\": 4", "for 4 ranks, but has programs of 3"},
        Defect{"collective", "\"all_reduce\"", "\"send\"", "'send' is not a collective"},
        Defect{"place", "[\"input\",2]", "[\"inputs\",2]", "rank 0, lane 0, step 0: 'source' is"},
        Defect{"peer", "\"send\":[1]", "\"send\":[3]", "'send' is [3]"},
        Defect{"wrong_chunk", "\"source\":[\"input\",1]", "\"source\":[\"input\",0]", "chunk"},
        Defect{"incomplete", "\"completes\":true", "\"completes\":false", "not marked complete"}),
    name_of_defect);

TEST(ProgramFile, SaysWhatAFileOfAnotherFormatIsBeforeItLooksAtMembers) {
  EXPECT_THAT(judge(R"({"name": "x", "inplace": true})").refusal,
              HasSubstr("the file: 'format' is missing"));
  EXPECT_THAT(
      judge(R"({"name": "x", "inplace": true, "gpus": [{"id": 0, "threadblocks": []}]})").refusal,
      HasSubstr("a plan of MSCCL++: expects 2 to 1024"));
}

TEST(ProgramFile, RefusesMoreMemoryThanAProofMayTake) {
  const auto ring = export_program(*find_algorithm("ring_all_reduce"), {.nranks = 3});
  ASSERT_TRUE(ring.has_value());
  std::string lanes;
  for (int lane = 0; lane < 2000; ++lane) {
    lanes += "{\"steps\": []},";
  }
  std::string text =
      replaced(format_program_json(ring.value()), "{\"lanes\": [", "{\"lanes\": [" + lanes);
  text = replaced(text, "\"chunks\": 3", "\"chunks\": 65536");
  EXPECT_THAT(judge(text).refusal, HasSubstr("more than a proof may take"));
}

TEST(ProgramFile, RefusesAFileThatIsNotThere) {
  const auto text = read_file("/nonexistent/file.json");
  ASSERT_TRUE(text.has_error());
  EXPECT_EQ(text.error().message(), "cannot read the file '/nonexistent/file.json'");
}

/// An all-gather of 2 ranks in which each sends all its `chunks`, then receives.
ProgramFile exchange(int chunks, bool with_next) {
  ProgramFile file;
  file.name = "exchange";
  file.collective = Collective::kAllGather;
  for (int rank = 0; rank < 2; ++rank) {
    Program& program = file.programs.emplace_back();
    program.rank = rank;
    program.nranks = 2;
    program.chunks = 2 * chunks;
    program.divides_buffer = true;
    program.peers = {1 - rank};
    std::vector<Step>& steps = program.lanes.emplace_back().steps;
    for (int i = 0; i < chunks; ++i) {
      steps.push_back({.source = Buffer::kInput,
                       .target = Buffer::kOutput,
                       .source_chunk = i,
                       .target_chunk = rank * chunks + i});
    }
    for (int i = 0; i < chunks; ++i) {
      steps.push_back({.source = Buffer::kInput,
                       .by_address = false,
                       .with_next = with_next && i + 1 < chunks,
                       .source_chunk = i,
                       .sends = 1});
    }
    for (int i = 0; i < chunks; ++i) {
      steps.push_back({.target = Buffer::kOutput,
                       .by_address = false,
                       .with_next = with_next && i + 1 < chunks,
                       .target_chunk = (1 - rank) * chunks + i,
                       .receives = 1});
    }
  }
  return file;
}

TEST(ProgramFile, ChunksOfAMessageTakeOneSlot) {
  EXPECT_THAT(judge(format_program_json(exchange(12, false))).refusal,
              HasSubstr("needs 12 slots of a connection, which has 8"));
  const std::string text = format_program_json(exchange(12, true));
  auto file = parse_program_file(text);
  ASSERT_TRUE(file.has_value());
  EXPECT_EQ(format_program_json(file.value()), text);
  const ProgramProof proof = prove(file.value());
  EXPECT_EQ(proof.reason, "");
  EXPECT_EQ(proof.any().slots_needed, 1U);
  EXPECT_TRUE(file.value().apart.empty()) << "it is only right with such messages";
  EXPECT_EQ(chunks_of_longest_message(file.value().programs), 12U);
}

TEST(ProgramFile, MessagesThatCanGoChunkByChunkHaveThatFormToo) {
  ProgramFile file = parse_program_file(format_program_json(exchange(5, true))).value();
  EXPECT_EQ(prove(file).reason, "");
  ASSERT_EQ(file.apart.size(), 2U);
  EXPECT_EQ(chunks_of_longest_message(file.programs), 5U);
  EXPECT_EQ(chunks_of_longest_message(file.apart), 1U);
}

}  // namespace
}  // namespace plexus
