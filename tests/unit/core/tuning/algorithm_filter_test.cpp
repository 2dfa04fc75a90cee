// SPDX-License-Identifier: Apache-2.0
// What NCCL_ALGO allows, and what it names.
#include "core/tuning/algorithm_filter.hpp"

#include <gtest/gtest.h>

#include "kernels/program/algorithms.hpp"

namespace plexus {
namespace {

const Algorithm& ring() { return *find_algorithm("ring_all_reduce"); }

AlgorithmFilter filter_of(const char* text) { return AlgorithmFilter::parse(text, "").value(); }

TEST(AlgorithmFilter, NamesWhatItListsAndNotWhatItExcludes) {
  EXPECT_TRUE(filter_of("ring").names(ring()));
  EXPECT_TRUE(filter_of("allreduce:tree,ring").names(ring()));
  EXPECT_FALSE(filter_of("^ring").names(ring())) << "excluded";
  EXPECT_FALSE(filter_of("^tree").names(ring())) << "allowed, by no word of its own";
  EXPECT_FALSE(filter_of("").names(ring()));
  EXPECT_FALSE(filter_of("broadcast:ring").names(ring()));
}

TEST(AlgorithmFilter, AListForAllCollectivesSparesTheOnlyAlgorithmOfSome) {
  const Algorithm& pairwise = *find_algorithm("pairwise_all_to_all");
  EXPECT_TRUE(filter_of("ring").allows(pairwise));
  EXPECT_FALSE(filter_of("alltoall:bruck").allows(pairwise)) << "a list for its own collective";
  EXPECT_FALSE(filter_of("^pairwise").allows(pairwise)) << "excluded by name";
}

TEST(AlgorithmFilter, RefusesWordsThatNeitherThisLibraryNorNcclKnows) {
  EXPECT_FALSE(AlgorithmFilter::parse("rang", "").has_value());
  EXPECT_TRUE(AlgorithmFilter::parse("ring,nvls", "").has_value()) << "NCCL's";
  EXPECT_FALSE(AlgorithmFilter::parse("", "nvls").has_value()) << "no protocol";
  EXPECT_FALSE(AlgorithmFilter::parse("allreduc:ring", "").has_value());
}

TEST(AlgorithmFilter, AllowsAllButWhatItExcludes) {
  EXPECT_TRUE(filter_of("^tree").allows(ring()));
  EXPECT_FALSE(filter_of("^ring").allows(ring()));
  EXPECT_FALSE(filter_of("tree").allows(ring()));
}

}  // namespace
}  // namespace plexus
