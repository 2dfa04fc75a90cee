// SPDX-License-Identifier: Apache-2.0
// Plexus's options of one call that other ranks and networks have a part in: deadlines, and
// checksums over a network that changes data.
#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <plexus.h>
#include <string>
#include <vector>

#include "tests/ranks/job.hpp"

namespace plexus::testing_job {
namespace {

using testing::HasSubstr;
using testing::Not;
using Clock = std::chrono::steady_clock;

constexpr int kDeadlineMs = 60;
constexpr auto kLongest = std::chrono::seconds(30);  // on a busy machine

/// ncclCollConfig_t with one option of Plexus.
class Options {
 public:
  Options(int option, int value) {
    option_.key = {PLEXUS_VENDOR_ID, option};
    option_.val.i = value;
    config_.ext = &option_;
  }
  Options(const Options&) = delete;
  Options& operator=(const Options&) = delete;
  [[nodiscard]] const ncclCollConfig_t* get() const { return &config_; }

 private:
  ncclConfigExt_t option_{};
  ncclCollConfig_t config_ = NCCL_COLLCONFIG_INITIALIZER;
};

void set_transport(const std::string& transport) {
  for (const char* const name : {"NCCL_P2P_DISABLE", "NCCL_SHM_DISABLE"}) {
    unsetenv(name);
  }
  if (transport != "Direct") {
    setenv("NCCL_P2P_DISABLE", "1", 1);
  }
  if (transport == "Net") {
    setenv("NCCL_SHM_DISABLE", "1", 1);
  }
}

ncclResult_t state_of(ncclComm_t comm) {
  ncclResult_t state = ncclInternalError;
  EXPECT_EQ(ncclCommGetAsyncError(comm, &state), ncclSuccess);
  return state;
}

class Deadline : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override { set_transport(GetParam()); }
  void TearDown() override { set_transport("Direct"); }

  /// A broadcast of `value` from rank 0 that both ranks make.
  static void broadcast(Job& job, float value) {
    std::array<float, 2> values{value, 0};
    const auto results = job.run_in_threads([&](int rank, ncclComm_t comm) {
      float* const mine = &values[static_cast<size_t>(rank)];
      return ncclBroadcastConfig(mine, mine, 1, ncclFloat, 0, comm, nullptr,
                                 Options(PLEXUS_OPTION_DEADLINE_MS, 30'000).get());
    });
    EXPECT_THAT(results, testing::Each(ncclSuccess)) << ncclGetLastError(nullptr);
    EXPECT_THAT(values, testing::Each(value));
  }
  /// Rank 1 waits for a broadcast that rank 0 does not make.
  static ncclResult_t wait_alone(const Job& job) {
    float value = -1;
    const auto began = Clock::now();
    const ncclResult_t result =
        ncclBroadcastConfig(&value, &value, 1, ncclFloat, 0, job.comm(1), nullptr,
                            Options(PLEXUS_OPTION_DEADLINE_MS, kDeadlineMs).get());
    const auto took = Clock::now() - began;
    EXPECT_GE(took, std::chrono::milliseconds(kDeadlineMs));
    EXPECT_LT(took, kLongest);
    EXPECT_THAT(ncclGetLastError(nullptr), HasSubstr("for rank 0"));
    EXPECT_THAT(ncclGetLastError(nullptr), HasSubstr("broadcast(count 1, float"));
    return result;
  }
};

TEST_P(Deadline, TakesACallBackThatNeverConnected) {
  Job job(2);
  EXPECT_EQ(wait_alone(job), ncclTimeout);
  EXPECT_THAT(ncclGetLastError(nullptr), HasSubstr("counts as not made"));
  EXPECT_EQ(state_of(job.comm(1)), ncclSuccess);
  EXPECT_EQ(wait_alone(job), ncclTimeout) << "again";
  broadcast(job, 3);
  broadcast(job, 4);
}

TEST_P(Deadline, TakesACallBackThatReceivedNothing) {
  Job job(2);
  broadcast(job, 1);
  EXPECT_EQ(wait_alone(job), ncclTimeout);
  if (std::string(GetParam()) == "Net") {  // a receive is posted, and may be filled
    EXPECT_EQ(state_of(job.comm(1)), ncclTimeout);
    return;
  }
  EXPECT_EQ(state_of(job.comm(1)), ncclSuccess);
  EXPECT_EQ(wait_alone(job), ncclTimeout);
  broadcast(job, 2);
  float value = 5;  // messages have numbers of their own
  const auto results = job.run_in_threads([&](int rank, ncclComm_t comm) {
    return rank == 0 ? ncclSend(&value, 1, ncclFloat, 1, comm, nullptr)
                     : ncclRecv(&value, 1, ncclFloat, 0, comm, nullptr);
  });
  EXPECT_THAT(results, testing::Each(ncclSuccess));
}

TEST_P(Deadline, TakesAllCallsOfAGroupBack) {
  Job job(2);
  float value = 0;
  const Options options(PLEXUS_OPTION_DEADLINE_MS, kDeadlineMs);
  ASSERT_EQ(ncclGroupStart(), ncclSuccess);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(
        ncclBroadcastConfig(&value, &value, 1, ncclFloat, 0, job.comm(1), nullptr, options.get()),
        ncclSuccess);
  }
  EXPECT_EQ(ncclGroupEnd(), ncclTimeout);
  EXPECT_EQ(state_of(job.comm(1)), ncclSuccess);
  broadcast(job, 6);
}

TEST_P(Deadline, EndsTheCommunicatorWhenSomethingWasSent) {
  Job job(2);
  float value = 1;
  std::vector<float> data(100'000, 1);
  (void)job.run_in_threads([&](int /*rank*/, ncclComm_t comm) {  // so that they are connected
    std::vector<float> mine = data;
    return ncclAllReduce(mine.data(), mine.data(), mine.size(), ncclFloat, ncclSum, comm, nullptr);
  });
  EXPECT_EQ(
      ncclAllReduceConfig(data.data(), data.data(), data.size(), ncclFloat, ncclSum, job.comm(0),
                          nullptr, Options(PLEXUS_OPTION_DEADLINE_MS, kDeadlineMs).get()),
      ncclTimeout);
  EXPECT_THAT(ncclGetLastError(job.comm(0)), HasSubstr("for rank 1"));
  EXPECT_EQ(state_of(job.comm(0)), ncclTimeout);
  EXPECT_NE(ncclAllReduce(&value, &value, 1, ncclFloat, ncclSum, job.comm(1), nullptr),
            ncclSuccess);
  EXPECT_THAT(ncclGetLastError(job.comm(1)), HasSubstr("for rank 1"));
}

constexpr int kFarDeadlineMs = 1000;  // so that the others are in their calls by then

/// Rank 3 of five is late; `ncclTimeout` on rank 0, which waits for rank 4 or for rank 1.
std::string error_of_far_rank(Job& job, const std::function<ncclResult_t(int, ncclComm_t)>& call) {
  std::string error;
  std::atomic<bool> is_over{false};
  (void)job.run_in_threads([&](int rank, ncclComm_t comm) {
    if (rank == 3) {
      is_over.wait(false);
      return ncclSuccess;
    }
    const ncclResult_t result = call(rank, comm);
    if (rank == 0) {
      EXPECT_EQ(result, ncclTimeout);
      error = ncclGetLastError(comm);
      is_over = true;
      is_over.notify_all();
    }
    return result;
  });
  return error;
}

/// Calls of all ranks but the late one; only rank 0 has a deadline.
ncclResult_t reduce_round_the_ring(int rank, ncclComm_t comm, cudaStream_t stream = nullptr) {
  std::vector<float> data(50'000, 1);
  const Options options(PLEXUS_OPTION_DEADLINE_MS, kFarDeadlineMs);
  ncclCollConfig_t config = NCCL_COLLCONFIG_INITIALIZER;
  const ncclResult_t result =
      ncclAllReduceConfig(data.data(), data.data(), data.size(), ncclFloat, ncclSum, comm, stream,
                          rank == 0 ? options.get() : &config);
  return result != ncclSuccess || stream == nullptr ? result : plexusStreamSynchronize(stream);
}

TEST_P(Deadline, NamesTheLateRankAndNotTheOneBetween) {
  setenv("NCCL_ALGO", "ring", 1);
  Job job(5);
  unsetenv("NCCL_ALGO");
  const std::string error = error_of_far_rank(
      job, [](int rank, ncclComm_t comm) { return reduce_round_the_ring(rank, comm); });
  EXPECT_THAT(error, HasSubstr("1000 ms (PLEXUS_OPTION_DEADLINE_MS) for rank 3, which has not"));
  EXPECT_THAT(error, Not(HasSubstr("rank 4")));
  EXPECT_THAT(error, Not(HasSubstr("rank 1 ")));
}

TEST_P(Deadline, NamesTheLateRankOnAStream) {
  setenv("NCCL_ALGO", "ring", 1);
  Job job(5);
  unsetenv("NCCL_ALGO");
  const std::string error = error_of_far_rank(job, [](int rank, ncclComm_t comm) {
    if (rank != 0) {
      return reduce_round_the_ring(rank, comm);
    }
    cudaStream_t stream = nullptr;
    EXPECT_EQ(plexusStreamCreate(&stream), ncclSuccess);
    const ncclResult_t result = reduce_round_the_ring(rank, comm, stream);
    (void)plexusStreamDestroy(stream);
    return result;
  });
  EXPECT_THAT(error, HasSubstr("for rank 3, which has not made that call"));
  EXPECT_THAT(error, Not(HasSubstr("rank 4")));
}

TEST_P(Deadline, NamesTheLateRankOfATreeAndTakesTheCallBack) {
  setenv("NCCL_ALGO", "binomial", 1);
  Job job(5);
  unsetenv("NCCL_ALGO");
  // Rank 0 waits for what rank 3 gives to the others in between, and has nothing to send.
  const std::string error = error_of_far_rank(job, [](int rank, ncclComm_t comm) {
    if (rank != 0) {
      return ncclSuccess;
    }
    float value = 0;
    return ncclBroadcastConfig(&value, &value, 1, ncclFloat, 3, comm, nullptr,
                               Options(PLEXUS_OPTION_DEADLINE_MS, kFarDeadlineMs).get());
  });
  EXPECT_THAT(error, HasSubstr("which has not made that call"));
  EXPECT_THAT(error, HasSubstr("(4 ranks in all are so: 1 2 3 4)"));
  EXPECT_THAT(error, HasSubstr("counts as not made"));
  EXPECT_EQ(state_of(job.comm(0)), ncclSuccess);
}

TEST_P(Deadline, EndsTheCommunicatorOnAStream) {
  const Job job(2);
  cudaStream_t stream = nullptr;
  ASSERT_EQ(plexusStreamCreate(&stream), ncclSuccess);
  float value = 0;
  EXPECT_EQ(ncclBroadcastConfig(&value, &value, 1, ncclFloat, 0, job.comm(1), stream,
                                Options(PLEXUS_OPTION_DEADLINE_MS, kDeadlineMs).get()),
            ncclSuccess);
  EXPECT_EQ(plexusStreamSynchronize(stream), ncclTimeout);
  EXPECT_EQ(state_of(job.comm(1)), ncclTimeout);
  EXPECT_THAT(ncclGetLastError(job.comm(1)), HasSubstr("for rank 0"));
  (void)plexusStreamDestroy(stream);
}

INSTANTIATE_TEST_SUITE_P(Transports,
                         Deadline,
                         testing::Values("Direct", "Shm", "Net"),
                         [](const auto& transport) { return std::string(transport.param); });

TEST(CallOptions, RefuseBadValues) {
  const Job job(1);
  float value = 1;
  for (const auto& [option, bad] : {std::pair{PLEXUS_OPTION_DEADLINE_MS, 0},
                                    {PLEXUS_OPTION_DEADLINE_MS, -5},
                                    {PLEXUS_OPTION_CHECKSUM, 2},
                                    {PLEXUS_OPTION_CHECKSUM, -1}}) {
    EXPECT_EQ(ncclAllReduceConfig(&value, &value, 1, ncclFloat, ncclSum, job.comm(0), nullptr,
                                  Options(option, bad).get()),
              ncclInvalidArgument);
    EXPECT_THAT(ncclGetLastError(nullptr), HasSubstr(std::to_string(bad)));
  }
}

/// A network that changes a bit.
class Checksum : public testing::Test {
 protected:
  void SetUp() override {
    set_transport("Net");
    setenv("NCCL_NET_PLUGIN", "chaos", 1);
    setenv("PLEXUS_CHAOS_SCRIPT", "recv: flip=1000", 1);
  }
  void TearDown() override {
    set_transport("Direct");
    unsetenv("NCCL_NET_PLUGIN");
    unsetenv("PLEXUS_CHAOS_SCRIPT");
  }
  static std::vector<ncclResult_t> broadcast(const ncclCollConfig_t* config) {
    constexpr size_t kCount = 100'000;
    Job job(2);
    return job.run_in_threads([&](int /*rank*/, ncclComm_t comm) {
      std::vector<uint8_t> data(kCount, 7);
      return ncclBroadcastConfig(data.data(), data.data(), kCount, ncclUint8, 0, comm, nullptr,
                                 config);
    });
  }
};

TEST_F(Checksum, FindsWhatANetworkChanges) {
  EXPECT_THAT(broadcast(nullptr), testing::Each(ncclSuccess)) << "nobody notices";
  const Options options(PLEXUS_OPTION_CHECKSUM, 1);
  EXPECT_NE(broadcast(options.get())[1], ncclSuccess);
  EXPECT_THAT(ncclGetLastError(nullptr), HasSubstr("CRC32C"));
}

TEST_F(Checksum, ChangesNothingWhereNothingIsChanged) {
  unsetenv("PLEXUS_CHAOS_SCRIPT");
  const Options options(PLEXUS_OPTION_CHECKSUM, 1);
  EXPECT_THAT(broadcast(options.get()), testing::Each(ncclSuccess));
}

}  // namespace
}  // namespace plexus::testing_job
