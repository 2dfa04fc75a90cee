// SPDX-License-Identifier: Apache-2.0
// The headers of integrations/cudart have the layouts and numbers of CUDA's, where those are
// installed. The numbers below are CUDA 13's, for machines without them.
#include <algorithm>

#include <gtest/gtest.h>

#include "tests/cudart/layout_facts.hpp"

namespace {

TEST(Headers, HaveTheLayoutsOfCuda) {
  const std::vector<Fact> ours = facts_of_plexus();
  const std::vector<Fact> theirs = facts_of_cuda();
  if (theirs.empty()) {
    GTEST_SKIP() << "CUDA 13's headers are not installed";
  }
  ASSERT_EQ(ours.size(), theirs.size());
  for (size_t i = 0; i < ours.size(); ++i) {
    EXPECT_EQ(ours[i].value, theirs[i].value) << ours[i].name;
  }
}

long long value_of(const std::string& name) {
  const std::vector<Fact> all = facts_of_plexus();
  const auto at =
      std::find_if(all.begin(), all.end(), [&](const Fact& f) { return f.name == name; });
  return at == all.end() ? -1 : at->value;
}

TEST(Headers, HaveTheLayoutsOfCuda13WithoutIt) {
  EXPECT_EQ(value_of("sizeof(cudaDeviceProp)"), 1008);
  EXPECT_EQ(value_of("sizeof(cudaPointerAttributes)"), 88);
  EXPECT_EQ(value_of("sizeof(cudaLaunchConfig_t)"), 56);
  EXPECT_EQ(value_of("cudaErrorNotReady"), 600);
}

}  // namespace
