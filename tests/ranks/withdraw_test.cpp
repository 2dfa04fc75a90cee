// SPDX-License-Identifier: Apache-2.0
// Calls on a stream that have not begun, because they wait behind others: ncclCommAbort,
// ncclCommRevoke and ncclCommShrink with NCCL_SHRINK_ABORT take them out at once, whatever they
// wait for.
#include <atomic>
#include <chrono>

#include "tests/ranks/job.hpp"

namespace plexus {
namespace {

using Clock = std::chrono::steady_clock;

// On a loaded machine; each used to take 5 s, or for ever.
constexpr auto kAtOnce = std::chrono::seconds(3);

/// Two ranks, of which rank 0 receives what rank 1 never sends.
class Pair {
 public:
  Pair() {
    EXPECT_EQ(ncclCommInitAll(comms_, 2, nullptr), ncclSuccess) << ncclGetLastError(nullptr);
  }
  ~Pair() {
    for (const ncclComm_t comm : comms_) {
      if (comm != nullptr) {
        EXPECT_EQ(ncclCommAbort(comm), ncclSuccess);
      }
    }
  }
  Pair(const Pair&) = delete;
  Pair& operator=(const Pair&) = delete;

  [[nodiscard]] ncclComm_t comm() const { return comms_[0]; }
  void wait_on(cudaStream_t stream) {
    ASSERT_EQ(ncclRecv(&value_, 1, ncclFloat, 1, comm(), stream), ncclSuccess)
        << ncclGetLastError(nullptr);
  }
  void abort() { EXPECT_EQ(ncclCommAbort(std::exchange(comms_[0], nullptr)), ncclSuccess); }

 private:
  float value_ = 0;
  ncclComm_t comms_[2] = {};
};

class Withdraw : public testing::Test {
 protected:
  Withdraw() { EXPECT_EQ(plexusStreamCreate(&stream_), ncclSuccess); }
  ~Withdraw() override {
    pairs_.clear();
    (void)plexusStreamDestroy(stream_);
  }
  template <class Action>
  static void expect_at_once(const Action& action) {
    const auto begin = Clock::now();
    action();
    EXPECT_LT(Clock::now() - begin, kAtOnce);
  }
  cudaStream_t stream_ = nullptr;
  std::vector<std::unique_ptr<Pair>> pairs_;
  void add_pairs(int count) {
    for (int pair = 0; pair < count; ++pair) {
      pairs_.push_back(std::make_unique<Pair>());
      pairs_.back()->wait_on(stream_);
    }
  }
};

TEST_F(Withdraw, AbortsTheNewestFirst) {
  add_pairs(5);
  expect_at_once([&] {
    for (auto pair = pairs_.rbegin(); pair != pairs_.rend(); ++pair) {
      (*pair)->abort();
    }
  });
  EXPECT_NE(plexusStreamSynchronize(stream_), ncclSuccess);
}

TEST_F(Withdraw, RevokesBehindAnother) {
  add_pairs(2);
  expect_at_once(
      [&] { EXPECT_EQ(ncclCommRevoke(pairs_[1]->comm(), NCCL_REVOKE_DEFAULT), ncclSuccess); });
}

TEST_F(Withdraw, ShrinksBehindAnother) {
  add_pairs(2);
  int excluded = 1;
  ncclComm_t alone = nullptr;
  expect_at_once([&] {
    EXPECT_EQ(ncclCommShrink(pairs_[1]->comm(), &excluded, 1, &alone, nullptr, NCCL_SHRINK_ABORT),
              ncclSuccess)
        << ncclGetLastError(nullptr);
  });
  EXPECT_EQ(ncclCommDestroy(alone), ncclSuccess);
}

TEST_F(Withdraw, AbortsWhatWaitsForAnEvent) {
  add_pairs(1);
  plexusEvent_t event = nullptr;
  ASSERT_EQ(plexusEventCreate(&event), ncclSuccess);
  ASSERT_EQ(plexusEventRecord(event, stream_), ncclSuccess);
  cudaStream_t other = nullptr;
  ASSERT_EQ(plexusStreamCreate(&other), ncclSuccess);
  ASSERT_EQ(plexusStreamWaitEvent(other, event), ncclSuccess);
  Pair late;
  late.wait_on(other);
  expect_at_once([&] { late.abort(); });
  pairs_.clear();
  EXPECT_NE(plexusStreamSynchronize(other), ncclSuccess);
  EXPECT_EQ(plexusEventDestroy(event), ncclSuccess);
  (void)plexusStreamDestroy(other);
}

/// The thread of the streams is in the function meanwhile.
TEST_F(Withdraw, AbortsBehindAFunctionOfTheHost) {
  std::atomic<bool> ends{false};
  const auto wait = [](void* flag) { static_cast<std::atomic<bool>*>(flag)->wait(false); };
  ASSERT_EQ(plexusLaunchHostFunc(stream_, wait, &ends), ncclSuccess);
  add_pairs(1);
  expect_at_once([&] { pairs_[0]->abort(); });
  ends = true;
  ends.notify_all();
  EXPECT_NE(plexusStreamSynchronize(stream_), ncclSuccess) << "the function looks no longer";
}

/// The group's other communicator keeps its part and its place.
TEST_F(Withdraw, LeavesTheRestOfAGroup) {
  add_pairs(1);
  testing_job::Job job(2);
  Pair pair;
  float value = 1;
  float sums[2] = {};
  ASSERT_EQ(ncclGroupStart(), ncclSuccess);
  pair.wait_on(stream_);
  for (int rank = 0; rank < 2; ++rank) {
    ASSERT_EQ(ncclAllReduce(&value, &sums[rank], 1, ncclFloat, ncclSum, job.comm(rank), stream_),
              ncclSuccess);
  }
  ASSERT_EQ(ncclGroupEnd(), ncclSuccess);
  expect_at_once([&] { pair.abort(); });
  EXPECT_EQ(sums[0], 0);
  pairs_[0]->abort();
  EXPECT_NE(plexusStreamSynchronize(stream_), ncclSuccess);
  EXPECT_EQ(sums[0], 2);
  EXPECT_EQ(sums[1], 2);
}

}  // namespace
}  // namespace plexus
