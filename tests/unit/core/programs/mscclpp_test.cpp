// SPDX-License-Identifier: Apache-2.0
// Execution plans of MSCCL++: what becomes of them is proved, or they are refused with the place.
#include <fstream>
#include <iterator>
#include <string>
#include <tuple>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/programs/export.hpp"
#include "core/programs/msccl_xml.hpp"
#include "core/programs/program_file.hpp"
#include "core/programs/program_json.hpp"

namespace plexus {
namespace {

std::string read(const std::string& name) {
  std::ifstream file(PLEXUS_PLAN_SAMPLES "/" + name);
  EXPECT_TRUE(file) << name;
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

struct Verdict {
  ProgramFile file;
  ProgramProof proof;
  std::string refusal;
};

Verdict judge(const std::string& text) {
  Verdict made;
  auto parsed = parse_program_file(text);
  if (parsed.has_error()) {
    made.refusal = parsed.error().message();
    return made;
  }
  made.file = std::move(parsed).value();
  made.proof = prove(made.file);
  made.refusal = made.proof.proved ? "" : made.proof.reason;
  return made;
}

TEST(MscclppPlans, AreProved) {
  for (const auto& [name, collective, in_place, ranks] :
       {std::tuple("read-reduce-put-3.json", Collective::kAllReduce, true, 3),
        {"packets-2.json", Collective::kAllReduce, true, 2},
        {"shared-2.json", Collective::kAllReduce, true, 2},
        {"put-allgather-4.json", Collective::kAllGather, false, 4}}) {
    const Verdict made = judge(read(name));
    EXPECT_EQ(made.refusal, "") << name;
    EXPECT_EQ(made.file.collective, collective) << name;
    EXPECT_EQ(made.file.nranks(), ranks) << name;
    EXPECT_TRUE(in_place ? made.proof.in_place.proved : made.proof.out_of_place.proved) << name;
  }
}

TEST(MscclppPlans, BecomeJsonThatIsProvedAgain) {
  Verdict made = judge(read("read-reduce-put-3.json"));
  ASSERT_EQ(made.refusal, "");
  made.file.root = 0;
  const Verdict again = judge(format_program_json(made.file));
  EXPECT_EQ(again.refusal, "");
  EXPECT_EQ(again.proof.any().steps, made.proof.any().steps);
}

TEST(MscclppPlans, OrdersThatAreMissingAreFound) {
  const std::string right = read("read-reduce-put-3.json");
  EXPECT_EQ(judge(right).refusal, "");
  EXPECT_NE(judge(read("race-2.json")).refusal, "") << "a block writes what another still reads";
  EXPECT_THAT(judge(read("deadlock-2.json")).refusal,
              testing::HasSubstr("gpu 1, tb 0, op 0 (wait): waits forever"));
}

TEST(MscclppPlans, AWrongChunkIsFound) {
  const std::string wrong =
      replaced(read("read-reduce-put-3.json"), R"({"buffer_id": 0, "index": 0)",
               R"({"buffer_id": 0, "index": 1)");
  EXPECT_NE(judge(wrong).refusal, "");
}

TEST(MscclppPlans, WhatCannotBeSaidIsNamed) {
  const std::string right = read("read-reduce-put-3.json");
  for (const auto& [text, says] :
       {std::pair(read("switch-2.json"), "gpu 0, tb 0, op 0 (glres): a switch computes it"),
        {replaced(right, "\"rres\"", "\"zap\""), "gpu 0, tb 0, op 2 (zap): is not an operation"},
        {replaced(right, "\"sum\"", "\"max\""), "reduces by 'max'"},
        {replaced(right, "\"allreduce\"", "\"sendrecv\""), "says no collective"},
        {replaced(right, "\"input_chunks\": 3", "\"input_chunks\": 4"), "gpu 0: expects"},
        {replaced(right, "\"buffer_id\": 1", "\"buffer_id\": 7"), "\"src_buff\""},
        {replaced(right, "\"index\": 0", "\"index\": 3"), "\"src_buff\""},
        {replaced(right, "\"channel_ids\": [0, 1]", "\"channel_ids\": [0, 9]"), "\"channel_ids\""},
        {replaced(right, "\"rank\": 1", "\"rank\": 0"), "remote_buffers"},
        {replaced(right, "\"input_chunks\": 3, ", "\"inputChunks\": 3, "), "first releases"}}) {
    EXPECT_THAT(judge(text).refusal, testing::HasSubstr(says));
  }
}

TEST(MscclExport, ComesBackAsTheSameAlgorithm) {
  for (const char* const algorithm :
       {"ring_all_reduce", "tree_all_reduce", "recursive_doubling_all_reduce",
        "two_shot_all_reduce", "torus_all_reduce", "ring_all_gather", "bruck_all_gather",
        "ring_reduce_scatter", "pairwise_all_to_all", "tree_broadcast", "binomial_reduce"}) {
    const Algorithm* const row = find_algorithm(algorithm);
    ASSERT_NE(row, nullptr) << algorithm;
    const auto file = export_program(*row, {.nranks = 4});
    ASSERT_TRUE(file.has_value()) << algorithm;
    const auto text = format_msccl(file.value());
    ASSERT_TRUE(text.has_value()) << algorithm << ": " << text.error().message();
    const Verdict made = judge(text.value());
    EXPECT_EQ(made.refusal, "") << algorithm << "\n" << text.value();
    EXPECT_EQ(made.file.collective, file.value().collective);
    EXPECT_EQ(made.file.programs.front().chunks, file.value().programs.front().chunks);
  }
}

TEST(MscclExport, SaysWhatAThreadBlockCannot) {
  const auto file = export_program(*find_algorithm("direct_gather"), {.nranks = 3});
  ASSERT_TRUE(file.has_value());
  const auto text = format_msccl(file.value());
  ASSERT_TRUE(text.has_error());
  EXPECT_THAT(text.error().message(), testing::HasSubstr("MSCCL has no gather"));
}

}  // namespace
}  // namespace plexus
