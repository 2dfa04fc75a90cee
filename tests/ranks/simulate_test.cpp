// SPDX-License-Identifier: Apache-2.0
// ncclGroupSimulateEnd: the tuner's time for a group, whose calls are not made.
#include <array>

#include "tests/ranks/job.hpp"

namespace plexus::testing_job {
namespace {

using testing::HasSubstr;

/// The estimate for `ncalls` all-reduces of `count` floats.
float simulate(Job& job, size_t count, int ncalls) {
  std::vector<float> values(count, 1);
  EXPECT_EQ(ncclGroupStart(), ncclSuccess);
  for (int call = 0; call < ncalls; ++call) {
    for (int rank = 0; rank < job.nranks(); ++rank) {
      EXPECT_EQ(ncclAllReduce(values.data(), values.data(), count, ncclFloat, ncclSum,
                              job.comm(rank), nullptr),
                ncclSuccess);
    }
  }
  ncclSimInfo_t info = NCCL_SIM_INFO_INITIALIZER;
  EXPECT_EQ(ncclGroupSimulateEnd(&info), ncclSuccess) << ncclGetLastError(nullptr);
  EXPECT_EQ(values, std::vector<float>(count, 1)) << "nothing has run";
  return info.estimatedTime;
}

TEST(Simulate, TheEstimateGrowsWithSizeAndNumberOfCalls) {
  Job job(4);
  const float small = simulate(job, 16, 1);
  const float large = simulate(job, 1 << 20, 1);
  EXPECT_GT(small, 0);
  EXPECT_GT(large, 10 * small);
  EXPECT_GT(simulate(job, 1 << 20, 2), 1.5F * large);
  std::array<float, 4> values{1, 2, 3, 4};
  job.run_in_group([&](int rank, ncclComm_t comm) {
    float* const mine = &values[static_cast<size_t>(rank)];
    return ncclAllReduce(mine, mine, 1, ncclFloat, ncclSum, comm, nullptr);
  });
  EXPECT_EQ(values, (std::array<float, 4>{10, 10, 10, 10})) << "the calls after it are matched";
}

TEST(Simulate, OneRankTakesNoTimeAndWithoutATunerThereIsNone) {
  {
    Job alone(1);
    EXPECT_EQ(simulate(alone, 16, 1), 0);
  }
  setenv("NCCL_TUNER_PLUGIN", "none", 1);
  {
    Job job(2);
    EXPECT_EQ(simulate(job, 16, 1), NCCL_UNDEF_FLOAT);
  }
  unsetenv("NCCL_TUNER_PLUGIN");
}

/// The estimate for messages of `count` floats from each rank to the next `npeers`.
float simulate_messages(Job& job, size_t count, int npeers) {
  std::vector<float> values(2 * count, 1);
  EXPECT_EQ(ncclGroupStart(), ncclSuccess);
  for (int rank = 0; rank < job.nranks(); ++rank) {
    for (int distance = 1; distance <= npeers; ++distance) {
      const int to = (rank + distance) % job.nranks();
      const int from = (rank - distance + job.nranks()) % job.nranks();
      EXPECT_EQ(ncclSend(values.data(), count, ncclFloat, to, job.comm(rank), nullptr),
                ncclSuccess);
      EXPECT_EQ(ncclRecv(values.data() + count, count, ncclFloat, from, job.comm(rank), nullptr),
                ncclSuccess);
    }
  }
  ncclSimInfo_t info = NCCL_SIM_INFO_INITIALIZER;
  EXPECT_EQ(ncclGroupSimulateEnd(&info), ncclSuccess) << ncclGetLastError(nullptr);
  return info.estimatedTime;
}

TEST(Simulate, MessagesCountByNumberAndSize) {
  Job job(4);
  const float small = simulate_messages(job, 16, 1);
  EXPECT_GT(small, 0);
  EXPECT_GT(simulate_messages(job, 16, 3), small);
  const float large = simulate_messages(job, 1 << 20, 1);
  EXPECT_GT(large, 10 * small);
  EXPECT_GT(simulate_messages(job, 1 << 20, 2), 1.5F * large);
  setenv("NCCL_TUNER_PLUGIN", "none", 1);
  {
    Job without(2);
    EXPECT_EQ(simulate_messages(without, 16, 1), NCCL_UNDEF_FLOAT);
  }
  unsetenv("NCCL_TUNER_PLUGIN");
}

TEST(Simulate, WrongUseHasACodeAndEndsTheGroup) {
  Job job(1);
  ncclSimInfo_t info = NCCL_SIM_INFO_INITIALIZER;
  EXPECT_EQ(ncclGroupSimulateEnd(&info), ncclInvalidUsage);
  EXPECT_THAT(ncclGetLastError(nullptr), HasSubstr("without ncclGroupStart"));
  ASSERT_EQ(ncclGroupStart(), ncclSuccess);
  info.magic = 1;
  EXPECT_EQ(ncclGroupSimulateEnd(&info), ncclInvalidArgument);
  EXPECT_EQ(ncclGroupEnd(), ncclInvalidUsage) << "the group is over";
  ASSERT_EQ(ncclGroupStart(), ncclSuccess);
  EXPECT_EQ(ncclAllReduce(nullptr, nullptr, 4, ncclFloat, ncclSum, job.comm(0), nullptr),
            ncclInvalidArgument);
  EXPECT_EQ(ncclGroupSimulateEnd(nullptr), ncclInvalidArgument) << "as the end of a failed group";
  ASSERT_EQ(ncclGroupStart(), ncclSuccess);
  ASSERT_EQ(ncclGroupStart(), ncclSuccess);
  EXPECT_EQ(ncclGroupSimulateEnd(nullptr), ncclSuccess) << "of an inner group";
  EXPECT_EQ(ncclGroupEnd(), ncclSuccess);
}

}  // namespace
}  // namespace plexus::testing_job
