// SPDX-License-Identifier: Apache-2.0
// A communicator of n ranks in this process for tests: all driven by one thread (`single`), or one
// thread each. The body of a rank is a function of (rank, communicator).
#pragma once

#include <cstdint>
#include <functional>
#include <plexus.h>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace plexus::testing_job {

class Job {
 public:
  explicit Job(int nranks) : comms_(static_cast<size_t>(nranks)) {
    EXPECT_EQ(ncclCommInitAll(comms_.data(), nranks, nullptr), ncclSuccess)
        << ncclGetLastError(nullptr);
  }
  ~Job() {
    for (const ncclComm_t comm : comms_) {
      EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
    }
  }
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  [[nodiscard]] int nranks() const { return static_cast<int>(comms_.size()); }
  [[nodiscard]] ncclComm_t comm(int rank) const { return comms_[static_cast<size_t>(rank)]; }

  using Body = std::function<ncclResult_t(int rank, ncclComm_t comm)>;

  /// All ranks' calls in one group of this thread.
  void run_in_group(const Body& body) {
    ASSERT_EQ(ncclGroupStart(), ncclSuccess);
    for (int rank = 0; rank < nranks(); ++rank) {
      ASSERT_EQ(body(rank, comm(rank)), ncclSuccess) << ncclGetLastError(nullptr);
    }
    ASSERT_EQ(ncclGroupEnd(), ncclSuccess) << ncclGetLastError(nullptr);
  }

  /// Runs each rank in its own thread; returns their results.
  std::vector<ncclResult_t> run_in_threads(const Body& body) {
    std::vector<ncclResult_t> results(comms_.size());
    std::vector<std::thread> threads;
    for (int rank = 0; rank < nranks(); ++rank) {
      threads.emplace_back(
          [&, rank] { results[static_cast<size_t>(rank)] = body(rank, comm(rank)); });
    }
    for (std::thread& thread : threads) {
      thread.join();
    }
    return results;
  }

 private:
  std::vector<ncclComm_t> comms_;
};

/// A value that depends on rank and index, exact in every type for small sums.
inline int64_t value_of(int rank, uint64_t index) {
  return static_cast<int64_t>((index * 7 + static_cast<uint64_t>(rank) * 3) % 5) + 1;
}

}  // namespace plexus::testing_job
