// SPDX-License-Identifier: Apache-2.0
// Communicators of CUDA ranks on the software device, in this process.
#pragma once

#include <cstdlib>
#include <cstring>
#include <functional>
#include <plexus.h>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/software_device.hpp"

namespace plexus::testing_device {

/// The one of this process (main.cpp).
SoftwareDevice& devices();

/// Device memory that a test reads and writes.
template <class T>
class Buffer {
 public:
  Buffer(int device, size_t count) : device_(device), count_(count) {
    data_ = static_cast<T*>(devices().allocate(device, (count + 1) * sizeof(T)).value());
  }
  Buffer(int device, const std::vector<T>& values) : Buffer(device, values.size()) {
    std::copy(values.begin(), values.end(), data_);
  }
  ~Buffer() {
    if (data_ != nullptr) {
      devices().release(device_, data_);
    }
  }
  Buffer(Buffer&& other) noexcept
      : device_(other.device_), count_(other.count_), data_(std::exchange(other.data_, nullptr)) {}
  Buffer& operator=(Buffer&&) = delete;
  [[nodiscard]] T* data() const { return data_; }
  [[nodiscard]] std::vector<T> values() const { return {data_, data_ + count_}; }

 private:
  int device_;
  size_t count_;
  T* data_;
};

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

/// Ranks 0..n-1 of one communicator, rank r on devices[r].
class Job {
 public:
  explicit Job(std::vector<int> on) : on_(std::move(on)), comms_(on_.size()) {
    EXPECT_EQ(ncclCommInitAll(comms_.data(), static_cast<int>(on_.size()), on_.data()), ncclSuccess)
        << ncclGetLastError(nullptr);
    for (size_t rank = 0; rank < on_.size(); ++rank) {
      streams_.push_back(devices().make_stream());
    }
  }
  ~Job() {
    for (const ncclComm_t comm : comms_) {
      if (comm != nullptr) {
        EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess) << ncclGetLastError(nullptr);
      }
    }
    for (const DeviceStream stream : streams_) {
      devices().destroy_stream(stream);
    }
  }
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  [[nodiscard]] int nranks() const { return static_cast<int>(comms_.size()); }
  [[nodiscard]] int device(int rank) const { return on_[static_cast<size_t>(rank)]; }
  [[nodiscard]] ncclComm_t comm(int rank) const { return comms_[static_cast<size_t>(rank)]; }
  [[nodiscard]] DeviceStream stream(int rank) const { return streams_[static_cast<size_t>(rank)]; }
  /// The test destroys it itself.
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
  /// Each rank in a thread of its own; what each returned.
  std::vector<ncclResult_t> run_in_threads(const Body& body) {
    std::vector<ncclResult_t> results(comms_.size());
    std::vector<std::thread> threads;
    for (int rank = 0; rank < nranks(); ++rank) {
      threads.emplace_back([&, rank] {
        SoftwareDevice::set_current(device(rank));
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
      devices().synchronize(stream);
    }
  }

 private:
  std::vector<int> on_;
  std::vector<ncclComm_t> comms_;
  std::vector<DeviceStream> streams_;
};

}  // namespace plexus::testing_device
