// SPDX-License-Identifier: Apache-2.0
// A thread that may wait for the driver, since nobody waits for it: it looks now and then whether
// the devices of communicators have failed, and gives back memory that is left while kernels run.
#pragma once

#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "core/device/device_memory.hpp"

namespace plexus {

/// Threads: any. One per process.
class DeviceWatch {
 public:
  class Subject {
   public:
    virtual ~Subject() = default;
    /// Called about once a second, and soon after wake(), with DriverCalls::kAll.
    virtual void look() = 0;
  };

  DeviceWatch() = default;
  ~DeviceWatch();
  DeviceWatch(const DeviceWatch&) = delete;
  DeviceWatch& operator=(const DeviceWatch&) = delete;

  /// Starts the thread if it does not run.
  Result<void> start(DeviceRuntime& runtime);
  void add(Subject& subject);
  /// Waits while the subject is being looked at.
  void remove(Subject& subject) noexcept;
  /// Something has happened to a subject.
  void wake() noexcept;
  /// Gives it back, as soon as the driver can. It has no other owner.
  void retire(std::shared_ptr<void> memory);

 private:
  void serve();
  void give_back(std::unique_lock<std::mutex>& lock);
  void look_at_all(std::unique_lock<std::mutex>& lock);

  std::mutex mutex_;
  std::condition_variable changed_;
  std::condition_variable looked_;
  DeviceRuntime* runtime_ = nullptr;            // guarded by mutex_
  std::vector<Subject*> subjects_;              // guarded by mutex_
  Subject* looks_at_ = nullptr;                 // guarded by mutex_
  std::vector<std::shared_ptr<void>> retired_;  // guarded by mutex_
  bool woken_ = false;                          // guarded by mutex_
  bool stop_ = false;                           // guarded by mutex_
  std::thread thread_;                          // started under mutex_
};

}  // namespace plexus
