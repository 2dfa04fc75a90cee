// SPDX-License-Identifier: Apache-2.0
// A call equal to the previous one skips checks and lookups: with other addresses, between other
// calls, and not if something changed that the checks would have found.
#include <array>
#include <span>

#include "tests/ranks/job.hpp"

namespace plexus {
namespace {

using testing::Each;
using testing::HasSubstr;
using testing_job::Job;

constexpr int kRanks = 2;
using Values = std::array<float, 4>;

/// Each of two ranks contributes `value`; `*output` gets the result.
ncclResult_t all_reduce(ncclComm_t comm,
                        float value,
                        ncclRedOp_t op,
                        Values* result,
                        size_t count = 4,
                        cudaStream_t stream = nullptr) {
  Values input;
  input.fill(value);
  const ncclResult_t done =
      ncclAllReduce(input.data(), result->data(), count, ncclFloat32, op, comm, stream);
  return stream == nullptr || done != ncclSuccess ? done : plexusStreamSynchronize(stream);
}

ncclResult_t expect_sum(ncclComm_t comm, float value, ncclRedOp_t op, float expected) {
  Values result{};
  const ncclResult_t done = all_reduce(comm, value, op, &result);
  EXPECT_THAT(result, Each(expected)) << "of " << value << ", op " << op;
  return done;
}

void expect_sum_in_group(ncclComm_t comm, float value, ncclRedOp_t op, float expected) {
  Values input;
  input.fill(value);
  Values result{};
  EXPECT_EQ(ncclGroupStart(), ncclSuccess);
  EXPECT_EQ(ncclAllReduce(input.data(), result.data(), 4, ncclFloat32, op, comm, nullptr),
            ncclSuccess);
  EXPECT_EQ(ncclGroupEnd(), ncclSuccess);
  EXPECT_THAT(result, Each(expected)) << "of " << value << ", op " << op << ", in a group";
}

/// Each of two ranks sends `input` to the other one and receives into `output`.
ncclResult_t exchange(
    ncclComm_t comm, int rank, const Values& input, Values* output, size_t count = 4) {
  EXPECT_EQ(ncclGroupStart(), ncclSuccess);
  ncclSend(input.data(), count, ncclFloat32, 1 - rank, comm, nullptr);
  ncclRecv(output->data(), count, ncclFloat32, 1 - rank, comm, nullptr);
  return ncclGroupEnd();
}

void expect_exchange(ncclComm_t comm, int rank, float value, size_t count = 4) {
  Values input;
  input.fill(value + static_cast<float>(rank));
  Values output{};
  EXPECT_EQ(exchange(comm, rank, input, &output, count), ncclSuccess) << ncclGetLastError(nullptr);
  EXPECT_THAT(std::span(output).first(count), Each(value + static_cast<float>(1 - rank)));
}

void run(const Job::Body& body) {
  Job job(kRanks);
  EXPECT_THAT(job.run_in_threads(body), Each(ncclSuccess)) << ncclGetLastError(nullptr);
}

TEST(Repeat, OtherAddressesAreReadAndWritten) {
  run([](int rank, ncclComm_t comm) {
    for (int call = 0; call < 100; ++call) {
      Values input;
      Values output{};
      input.fill(static_cast<float>(call + rank));
      EXPECT_EQ(ncclAllReduce(input.data(), output.data(), 4, ncclFloat32, ncclSum, comm, nullptr),
                ncclSuccess);
      EXPECT_THAT(output, Each(static_cast<float>(2 * call + 1)));
    }
    return ncclSuccess;
  });
}

TEST(Repeat, PlansThatReductionsShareKeepTheirScalarsApart) {
  run([](int /*rank*/, ncclComm_t comm) {
    const float scalar = 3;
    ncclRedOp_t tripled{};
    EXPECT_EQ(ncclRedOpCreatePreMulSum(&tripled, const_cast<float*>(&scalar), ncclFloat32,
                                       ncclScalarHostImmediate, comm),
              ncclSuccess);
    for (int round = 0; round < 5; ++round) {
      expect_sum(comm, 4, ncclAvg, 4);
      expect_sum(comm, 4, ncclAvg, 4);
      expect_sum(comm, 4, tripled, 24);
      expect_sum(comm, 4, tripled, 24);
      expect_sum(comm, 4, ncclAvg, 4);
      expect_sum_in_group(comm, 4, tripled, 24);
      expect_sum(comm, 4, ncclAvg, 4);
      expect_sum_in_group(comm, 4, ncclAvg, 4);
      expect_sum_in_group(comm, 4, tripled, 24);
      expect_sum_in_group(comm, 4, ncclAvg, 4);
    }
    EXPECT_EQ(ncclRedOpDestroy(tripled, comm), ncclSuccess);
    Values result{};
    EXPECT_EQ(all_reduce(comm, 4, tripled, &result), ncclInvalidArgument);
    return expect_sum(comm, 4, ncclAvg, 4);
  });
}

TEST(Repeat, GroupsStreamsAndMorePlansThanAreKeptComeBetween) {
  run([](int /*rank*/, ncclComm_t comm) {
    cudaStream_t stream = nullptr;
    EXPECT_EQ(plexusStreamCreate(&stream), ncclSuccess);
    Values result{};
    for (size_t round = 0; round < 3; ++round) {
      expect_sum(comm, 2, ncclSum, 4);
      EXPECT_EQ(ncclGroupStart(), ncclSuccess);
      Values inputs;
      inputs.fill(5);
      Values outputs{};  // the same shape, but executed at the group's end
      EXPECT_EQ(
          ncclAllReduce(inputs.data(), outputs.data(), 4, ncclFloat32, ncclSum, comm, nullptr),
          ncclSuccess);
      EXPECT_THAT(outputs, Each(0.0F));
      EXPECT_EQ(ncclGroupEnd(), ncclSuccess);
      EXPECT_THAT(outputs, Each(10.0F));
      expect_sum(comm, 2, ncclSum, 4);
      EXPECT_EQ(all_reduce(comm, 3, ncclSum, &result, 4, stream), ncclSuccess);
      EXPECT_THAT(result, Each(6.0F));
      std::vector<float> many(100, 1.0F);
      for (size_t count = 1; count <= many.size(); ++count) {
        EXPECT_EQ(
            ncclAllReduce(many.data(), many.data(), count, ncclFloat32, ncclMax, comm, nullptr),
            ncclSuccess);
      }
      expect_sum(comm, 2, ncclSum, 4);
    }
    return plexusStreamDestroy(stream);
  });
}

TEST(Repeat, IsCheckedWhenAnAddressIsNullNow) {
  run([](int /*rank*/, ncclComm_t comm) {
    expect_sum(comm, 2, ncclSum, 4);
    Values result{};
    EXPECT_EQ(ncclAllReduce(nullptr, result.data(), 4, ncclFloat32, ncclSum, comm, nullptr),
              ncclInvalidArgument);
    EXPECT_THAT(ncclGetLastError(nullptr), HasSubstr("send buffer is NULL"));
    return expect_sum(comm, 2, ncclSum, 4);
  });
}

TEST(Repeat, EndsWithTheCommunicator) {
  Job job(kRanks);
  const auto results = job.run_in_threads([](int /*rank*/, ncclComm_t comm) {
    expect_sum(comm, 2, ncclSum, 4);
    expect_sum(comm, 2, ncclSum, 4);
    EXPECT_EQ(ncclCommFinalize(comm), ncclSuccess);
    Values result{};
    return all_reduce(comm, 2, ncclSum, &result);
  });
  EXPECT_THAT(results, Each(ncclInvalidUsage));
}

TEST(Repeat, GroupsReadAndWriteOtherAddresses) {
  run([](int rank, ncclComm_t comm) {
    for (int call = 0; call < 100; ++call) {
      expect_exchange(comm, rank, static_cast<float>(call));
    }
    return ncclSuccess;
  });
}

TEST(Repeat, GroupsThatDifferLateAreOtherGroups) {
  run([](int rank, ncclComm_t comm) {
    const int peer = 1 - rank;
    Values sent;
    sent.fill(static_cast<float>(rank));
    Values received{};
    Values sum{};
    for (int round = 0; round < 5; ++round) {
      expect_exchange(comm, rank, 1);
      expect_exchange(comm, rank, 2, 3);  // another count
      expect_exchange(comm, rank, 3);
      EXPECT_EQ(ncclGroupStart(), ncclSuccess);  // its first part only
      EXPECT_EQ(rank == 0 ? ncclSend(sent.data(), 4, ncclFloat32, peer, comm, nullptr)
                          : ncclRecv(received.data(), 4, ncclFloat32, peer, comm, nullptr),
                ncclSuccess);
      EXPECT_EQ(ncclGroupEnd(), ncclSuccess);
      expect_exchange(comm, rank, 4);
      EXPECT_EQ(ncclGroupStart(), ncclSuccess);
      EXPECT_EQ(ncclSend(sent.data(), 4, ncclFloat32, peer, comm, nullptr), ncclSuccess);
      EXPECT_EQ(ncclRecv(received.data(), 4, ncclFloat32, peer, comm, nullptr), ncclSuccess);
      EXPECT_EQ(ncclAllReduce(sent.data(), sum.data(), 4, ncclFloat32, ncclSum, comm, nullptr),
                ncclSuccess);
      EXPECT_EQ(ncclGroupEnd(), ncclSuccess);
      EXPECT_THAT(received, Each(static_cast<float>(peer)));
      EXPECT_THAT(sum, Each(1.0F));
      EXPECT_EQ(ncclGroupStart(), ncclSuccess);  // nothing at all
      EXPECT_EQ(ncclGroupEnd(), ncclSuccess);
      expect_sum(comm, 2, ncclSum, 4);
      expect_exchange(comm, rank, 5);
      expect_sum(comm, 2, ncclSum, 4);
    }
    return ncclSuccess;
  });
}

TEST(Repeat, GroupsOfTwoCommunicatorsAreKeptApart) {
  run([](int rank, ncclComm_t comm) {
    ncclComm_t other = nullptr;
    EXPECT_EQ(ncclCommSplit(comm, 0, 1 - rank, &other, nullptr), ncclSuccess);  // ranks swapped
    for (int round = 0; round < 5; ++round) {
      expect_exchange(comm, rank, 1);
      expect_exchange(other, 1 - rank, 2);
    }
    EXPECT_EQ(ncclCommDestroy(other), ncclSuccess);
    EXPECT_EQ(ncclCommSplit(comm, 0, rank, &other, nullptr), ncclSuccess);  // at the same address
    expect_exchange(other, rank, 3);
    return ncclCommDestroy(other);
  });
}

TEST(Repeat, GroupsAreCheckedWhenAnAddressIsNullNow) {
  run([](int rank, ncclComm_t comm) {
    Values result{};
    expect_exchange(comm, rank, 1);
    EXPECT_EQ(ncclGroupStart(), ncclSuccess);
    EXPECT_EQ(ncclSend(result.data(), 4, ncclFloat32, 1 - rank, comm, nullptr), ncclSuccess);
    EXPECT_EQ(ncclRecv(nullptr, 4, ncclFloat32, 1 - rank, comm, nullptr), ncclInvalidArgument);
    EXPECT_EQ(ncclGroupEnd(), ncclInvalidArgument);
    expect_exchange(comm, rank, 2);
    expect_exchange(comm, rank, 3);
    return ncclSuccess;
  });
}

TEST(Repeat, GroupsEndWithTheCommunicator) {
  Job job(kRanks);
  const auto results = job.run_in_threads([](int rank, ncclComm_t comm) {
    expect_exchange(comm, rank, 1);
    expect_exchange(comm, rank, 2);
    EXPECT_EQ(ncclCommFinalize(comm), ncclSuccess);
    const Values input{};
    Values output{};
    return exchange(comm, rank, input, &output);
  });
  EXPECT_THAT(results, Each(ncclInvalidUsage));
}

TEST(Repeat, FindsThatAnotherRankMakesAnotherCall) {
  Job job(kRanks);
  const auto results = job.run_in_threads([](int rank, ncclComm_t comm) {
    expect_sum(comm, 2, ncclSum, 4);
    expect_sum(comm, 2, ncclSum, 4);
    Values result{};
    return all_reduce(comm, 2, rank == 0 ? ncclSum : ncclMax, &result);
  });
  EXPECT_THAT(results, testing::Contains(ncclInvalidUsage));
}

TEST(Repeat, AfterAGroupThatCouldNotBePlannedTheLastCallIsPlannedAgain) {
  constexpr size_t kPlans = 64;  // that a communicator keeps
  ncclComm_t comm = nullptr;
  ASSERT_EQ(ncclCommInitAll(&comm, 1, nullptr), ncclSuccess);
  std::vector<float> input(2 * kPlans, 1);
  std::vector<float> output(2 * kPlans);
  const auto call = [&](size_t count) {
    return ncclAllReduce(input.data(), output.data(), count, ncclFloat32, ncclSum, comm, nullptr);
  };
  ASSERT_EQ(call(16), ncclSuccess);
  for (size_t i = 1; i < kPlans; ++i) {
    ASSERT_EQ(ncclGroupStart(), ncclSuccess);
    ASSERT_EQ(call(16 + i), ncclSuccess);
    ASSERT_EQ(ncclGroupEnd(), ncclSuccess);
  }
  ASSERT_EQ(ncclGroupStart(), ncclSuccess);
  ASSERT_EQ(ncclSend(input.data(), 7, ncclFloat32, 0, comm, nullptr), ncclSuccess);
  EXPECT_EQ(ncclGroupEnd(), ncclInvalidUsage) << "to itself, without its receive";
  output.assign(output.size(), 0);
  EXPECT_EQ(call(16), ncclSuccess);
  EXPECT_EQ(output[15], 1);
  EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
}

}  // namespace
}  // namespace plexus
