// SPDX-License-Identifier: Apache-2.0
// Communicators of CUDA ranks in this process, on the tests' machine.
#pragma once

#include <cstdlib>
#include <functional>
#include <memory>
#include <plexus.h>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/machine.hpp"

namespace plexus::testing_device {

/// Why a test is skipped where Machine::waits_in_launch().
inline constexpr const char* kWaitsInLaunch =
    "a launch returns when its kernel has ended, which waits for what the test's thread does next";

/// A setting for the communicators that the test makes.
class Setting {
 public:
  Setting(const char* name, const char* value) : name_(name) { setenv(name, value, 1); }
  ~Setting() { unsetenv(name_); }
  Setting(const Setting&) = delete;
  Setting& operator=(const Setting&) = delete;

 private:
  const char* name_;
};

/// A setting of the test's environment, or made by run_processes(); "": there is none.
inline std::string setting(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

/// Ranks reach each other by net-socket alone.
class OverNetwork {
  Setting no_shm_{"NCCL_SHM_DISABLE", "1"};
  Setting no_p2p_{"NCCL_P2P_DISABLE", "1"};
  // with ThreadSanitizer plugins are not found by the test's RUNPATH
  Setting plugins_{"PLEXUS_PLUGIN_PATH", setting("PLEXUS_TEST_LIB_DIR").c_str()};
};

/// Device memory that a test reads and writes.
template <class T>
class Buffer {
 public:
  Buffer(int device, size_t count) : device_(machine().device(device)), count_(count) {
    data_ = static_cast<T*>(machine().allocate(device_, (count + 1) * sizeof(T)));
  }
  Buffer(int device, const std::vector<T>& values) : Buffer(device, values.size()) {
    write(values);
  }
  ~Buffer() {
    if (data_ != nullptr) {
      machine().release(device_, data_);
    }
  }
  Buffer(Buffer&& other) noexcept
      : device_(other.device_), count_(other.count_), data_(std::exchange(other.data_, nullptr)) {}
  Buffer& operator=(Buffer&&) = delete;
  [[nodiscard]] T* data() const { return data_; }
  [[nodiscard]] std::vector<T> values() const {
    std::vector<T> values(count_);
    machine().copy(device_, values.data(), data_, count_ * sizeof(T));
    return values;
  }
  /// The first one.
  [[nodiscard]] T value() const {
    T value{};
    machine().copy(device_, &value, data_, sizeof(T));
    return value;
  }
  void write(const std::vector<T>& values) const {
    machine().copy(device_, data_, values.data(), values.size() * sizeof(T));
  }

 private:
  int device_ = 0;
  size_t count_ = 0;
  T* data_ = nullptr;
};

/// Ranks 0..n-1 of one communicator, rank r on device on[r].
class Job {
 public:
  explicit Job(std::vector<int> on) : on_(std::move(on)), comms_(on_.size()) {
    for (int& device : on_) {
      device = machine().device(device);
    }
    EXPECT_EQ(ncclCommInitAll(comms_.data(), static_cast<int>(on_.size()), on_.data()), ncclSuccess)
        << ncclGetLastError(nullptr);
    for (const int device : on_) {
      streams_.push_back(machine().make_stream(device));
    }
  }
  ~Job() {
    for (const ncclComm_t comm : comms_) {
      if (comm != nullptr) {
        EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess) << ncclGetLastError(nullptr);
      }
    }
    for (const DeviceStream stream : streams_) {
      machine().destroy_stream(stream);
    }
  }
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  [[nodiscard]] int nranks() const { return static_cast<int>(comms_.size()); }
  [[nodiscard]] size_t comm_count() const { return comms_.size(); }
  [[nodiscard]] int device(int rank) const { return on_[static_cast<size_t>(rank)]; }
  [[nodiscard]] ncclComm_t comm(int rank) const { return comms_[static_cast<size_t>(rank)]; }
  [[nodiscard]] DeviceStream stream(int rank) const { return streams_[static_cast<size_t>(rank)]; }
  /// The test destroys the communicator itself.
  ncclComm_t take(int rank) { return std::exchange(comms_[static_cast<size_t>(rank)], nullptr); }

  using Body = std::function<ncclResult_t(int rank, ncclComm_t comm, DeviceStream stream)>;

  /// All ranks' calls in one group of this thread.
  void run_in_group(const Body& body) {
    ASSERT_EQ(ncclGroupStart(), ncclSuccess);
    for (int rank = 0; rank < nranks(); ++rank) {
      ASSERT_EQ(body(rank, comm(rank), stream(rank)), ncclSuccess) << ncclGetLastError(nullptr);
    }
    ASSERT_EQ(ncclGroupEnd(), ncclSuccess) << ncclGetLastError(nullptr);
  }
  /// Runs each rank in its own thread; returns their results.
  std::vector<ncclResult_t> run_in_threads(const Body& body) {
    std::vector<ncclResult_t> results(comms_.size());
    std::vector<std::thread> threads;
    threads.reserve(comms_.size());
    for (int rank = 0; rank < nranks(); ++rank) {
      threads.emplace_back([&, rank] {
        machine().set_current(device(rank));
        results[static_cast<size_t>(rank)] = body(rank, comm(rank), stream(rank));
      });
    }
    for (std::thread& thread : threads) {
      thread.join();
    }
    return results;
  }
  void synchronize() {
    for (const DeviceStream stream : streams_) {
      machine().synchronize(stream);
    }
  }

 private:
  std::vector<int> on_;
  std::vector<ncclComm_t> comms_;
  std::vector<DeviceStream> streams_;
};

}  // namespace plexus::testing_device
