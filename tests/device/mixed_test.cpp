// SPDX-License-Identifier: Apache-2.0
// Communicators of CUDA ranks and host ranks together, in one process.
#include <memory>
#include <optional>

#include "tests/device/job.hpp"
#include "tests/device/shapes.hpp"

namespace plexus::testing_device {
namespace {

constexpr int kHost = -1;

/// A rank's buffer where it computes, and its stream there.
class Memory {
 public:
  Memory(int on, const std::vector<int32_t>& values) {
    if (on == kHost) {
      on_host_ = values;
      return;
    }
    on_device_.emplace(on, values);
    stream_ = machine().make_stream(machine().device(on));
  }
  ~Memory() {
    if (stream_ != nullptr) {
      machine().destroy_stream(stream_);
    }
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  [[nodiscard]] int32_t* data() { return on_device_ ? on_device_->data() : on_host_.data(); }
  [[nodiscard]] std::vector<int32_t> values() const {
    return on_device_ ? on_device_->values() : on_host_;
  }
  [[nodiscard]] DeviceStream stream() const { return stream_; }
  void synchronize() const {
    if (stream_ != nullptr) {
      machine().synchronize(stream_);
    }
  }

 private:
  std::vector<int32_t> on_host_;
  std::optional<Buffer<int32_t>> on_device_;
  DeviceStream stream_ = nullptr;
};

/// Rank r on device on[r], or on the host.
class MixedJob {
 public:
  explicit MixedJob(const std::vector<int>& on) : on_(on), comms_(on.size()) {
    ncclUniqueId id;
    EXPECT_EQ(ncclGetUniqueId(&id), ncclSuccess);
    EXPECT_EQ(ncclGroupStart(), ncclSuccess);
    for (size_t rank = 0; rank < on.size(); ++rank) {
      setenv("PLEXUS_DEVICE", on[rank] == kHost ? "host" : "cuda", 1);
      machine().set_current(machine().device(std::max(on[rank], 0)));
      EXPECT_EQ(
          ncclCommInitRank(&comms_[rank], static_cast<int>(on.size()), id, static_cast<int>(rank)),
          ncclSuccess);
    }
    setenv("PLEXUS_DEVICE", "cuda", 1);
    EXPECT_EQ(ncclGroupEnd(), ncclSuccess) << ncclGetLastError(nullptr);
    machine().set_current(0);
  }
  ~MixedJob() {
    EXPECT_EQ(ncclGroupStart(), ncclSuccess);
    for (const ncclComm_t comm : comms_) {
      EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
    }
    EXPECT_EQ(ncclGroupEnd(), ncclSuccess);
  }
  MixedJob(const MixedJob&) = delete;
  MixedJob& operator=(const MixedJob&) = delete;

  [[nodiscard]] ncclComm_t comm(size_t rank) const { return comms_[rank]; }

  /// One call of `shape` on all ranks, checked.
  void expect(const Shape& shape, size_t count, bool in_threads) {
    const auto nranks = static_cast<int>(on_.size());
    std::vector<std::unique_ptr<Memory>> in;
    std::vector<std::unique_ptr<Memory>> out;
    for (int rank = 0; rank < nranks; ++rank) {
      const int on = on_[static_cast<size_t>(rank)];
      std::vector<int32_t> values(shape.in_count(count, on_.size()));
      for (size_t i = 0; i < values.size(); ++i) {
        values[i] = value_of(rank, i);
      }
      in.push_back(std::make_unique<Memory>(on, values));
      out.push_back(
          std::make_unique<Memory>(on, std::vector<int32_t>(shape.out_count(count, on_.size()))));
    }
    const auto call = [&](size_t rank) {
      EXPECT_EQ(
          shape.call(in[rank]->data(), out[rank]->data(), count, comms_[rank], in[rank]->stream()),
          ncclSuccess)
          << ncclGetLastError(nullptr);
    };
    std::vector<std::thread> threads;
    EXPECT_EQ(ncclGroupStart(), ncclSuccess);
    for (size_t rank = 0; rank < on_.size(); ++rank) {
      if (in_threads) {
        threads.emplace_back(call, rank);
      } else {
        call(rank);
      }
    }
    EXPECT_EQ(ncclGroupEnd(), ncclSuccess) << ncclGetLastError(nullptr);
    for (std::thread& thread : threads) {
      thread.join();
    }
    for (int rank = 0; rank < nranks; ++rank) {
      in[static_cast<size_t>(rank)]->synchronize();
      if (!shape.root_only || rank == kRoot) {
        EXPECT_EQ(out[static_cast<size_t>(rank)]->values(),
                  shape.expected_output(nranks, rank, count))
            << shape.name << " of " << count << " on rank " << rank;
      }
    }
  }
  void expect_all_reduce(size_t count, bool in_threads) {
    expect(*find_shape(Collective::kAllReduce), count, in_threads);
  }

 private:
  std::vector<int> on_;
  std::vector<ncclComm_t> comms_;
};

TEST(MixedRanks, AllReduceInOneGroup) {
  if (machine().waits_in_launch()) {
    GTEST_SKIP() << kWaitsInLaunch;
  }
  MixedJob job({0, kHost, 1, kHost});
  for (const size_t count : {size_t{1}, size_t{500}, size_t{60'000}, size_t{400'000}}) {
    job.expect_all_reduce(count, false);
  }
}

TEST(MixedRanks, AllReduceInThreads) {
  MixedJob job({kHost, 0, 0});
  for (const size_t count : {size_t{1}, size_t{500}, size_t{60'000}, size_t{400'000}}) {
    job.expect_all_reduce(count, true);
  }
}

class MixedCollective : public testing::TestWithParam<Shape> {};

TEST_P(MixedCollective, GivesTheRightResult) {
  if (machine().waits_in_launch()) {
    GTEST_SKIP() << kWaitsInLaunch;
  }
  MixedJob job({0, kHost, 1, kHost});
  for (const size_t count : {size_t{3}, size_t{700}, size_t{30'000}}) {
    job.expect(GetParam(), count, false);
  }
}

INSTANTIATE_TEST_SUITE_P(MixedRanks,
                         MixedCollective,
                         testing::ValuesIn(kShapes),
                         [](const auto& shape) { return std::string(shape.param.name); });

TEST(MixedRanks, SpeakEveryProtocol) {
  if (machine().waits_in_launch()) {
    GTEST_SKIP() << kWaitsInLaunch;
  }
  for (const char* const protocol : {"LL", "LL128", "Simple"}) {
    const Setting setting("NCCL_PROTO", protocol);
    MixedJob job({0, kHost});
    job.expect_all_reduce(30'000, false);
  }
}

TEST(MixedRanks, ARankOnTheHostRefusesMemoryOfADevice) {
  MixedJob job({kHost});
  Memory memory(0, std::vector<int32_t>(4));
  EXPECT_EQ(
      ncclAllReduce(memory.data(), memory.data(), 4, ncclInt32, ncclSum, job.comm(0), nullptr),
      ncclInvalidArgument);
  EXPECT_THAT(ncclGetLastError(nullptr), testing::HasSubstr("is memory of a GPU"));
}

}  // namespace
}  // namespace plexus::testing_device
