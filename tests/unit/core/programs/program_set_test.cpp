// SPDX-License-Identifier: Apache-2.0
// The files of PLEXUS_PROGRAM_PATH as candidates.
#include "core/programs/program_set.hpp"

#include "tests/unit/core/programs/samples.hpp"

namespace plexus {
namespace {

TEST(ProgramSet, HasTheProvedFilesForItsNumberOfRanks) {
  const auto texts = read_program_folders(PLEXUS_MSCCL_SAMPLES);
  ASSERT_TRUE(texts.has_value());
  EXPECT_EQ(texts.value().size(), 16U);
  std::vector<std::string> names;
  const ProgramSet four(texts.value(), 4);
  for (const Algorithm& algorithm : four.algorithms()) {
    names.emplace_back(algorithm.family);
    EXPECT_GT(algorithm.recorded->cost.rounds, 0) << algorithm.family;
  }
  EXPECT_EQ(names, (std::vector<std::string>{"allpairs-allreduce", "in-place-chain",
                                             "doubling-allgather", "hierarchical-alltoall",
                                             "ring-allreduce", "tree-reduce-in-place"}));
  EXPECT_EQ(four.families().size(), 13U);  // with those for other numbers of ranks
  EXPECT_TRUE(ProgramSet(texts.value(), 5).algorithms().empty());
}

TEST(ProgramSet, GivesAFileThatIsNamedLikeABuiltInFamilyAnotherName) {
  const ProgramText text{
      .path = "ring.xml",
      .text = replaced(sample("ring-allreduce-4"), "name=\"ring-allreduce\"", "name=\"Ring\"")};
  const ProgramSet set(std::span(&text, 1), 4);
  ASSERT_EQ(set.algorithms().size(), 1U);
  EXPECT_EQ(std::string(set.algorithms()[0].family), "ring-file");
}

TEST(ProgramSet, HasAHashOfNamesAndTexts) {
  const auto texts = read_program_folders(PLEXUS_MSCCL_SAMPLES);
  ASSERT_TRUE(texts.has_value());
  std::vector<ProgramText> changed = texts.value();
  changed.back().text += " ";
  EXPECT_NE(hash_of(changed), hash_of(texts.value()));
  EXPECT_EQ(hash_of({}), 0U);
  EXPECT_TRUE(read_program_folders("/nonexistent").has_error());
}

}  // namespace
}  // namespace plexus
