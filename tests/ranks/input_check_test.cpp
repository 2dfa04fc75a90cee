// SPDX-License-Identifier: Apache-2.0
// PLEXUS_CHECK_NAN=1 on ranks of one process, which ncclCommInitAll makes.
#include <array>
#include <cmath>
#include <cstdlib>

#include "tests/ranks/job.hpp"

namespace plexus::testing_job {
namespace {

TEST(InputCheck, RanksOfOneProcessAreLookedAtToo) {
  ASSERT_EQ(setenv("PLEXUS_CHECK_NAN", "1", 1), 0);
  Job job(3);
  std::array<float, 3> values{1, NAN, 3};
  testing::internal::CaptureStderr();
  job.run_in_group([&](int rank, ncclComm_t comm) {
    float* const mine = &values[static_cast<size_t>(rank)];
    return ncclAllReduce(mine, mine, 1, ncclFloat, ncclSum, comm, nullptr);
  });
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_THAT(said, testing::ContainsRegex("rank 1 of 3 gives a NaN to all_reduce"));
  EXPECT_THAT(said, testing::Not(testing::HasSubstr("rank 0 of 3")));
  EXPECT_TRUE(std::isnan(values[0])) << "the call is made all the same";
}

}  // namespace
}  // namespace plexus::testing_job
