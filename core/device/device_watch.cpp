// SPDX-License-Identifier: Apache-2.0
#include "core/device/device_watch.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

#include "core/base/thread.hpp"

namespace plexus {

constexpr auto kLookEvery = std::chrono::seconds(1);

DeviceWatch::~DeviceWatch() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) {
    thread_.join();
  }
}

Result<void> DeviceWatch::start(DeviceRuntime& runtime) {
  const std::lock_guard lock(mutex_);
  runtime_ = &runtime;
  if (!thread_.joinable()) {
    PLEXUS_TRY(thread, start_thread("watching devices", [this] { serve(); }));
    thread_ = std::move(thread);
  }
  return ok();
}

void DeviceWatch::add(Subject& subject) {
  const std::lock_guard lock(mutex_);
  subjects_.push_back(&subject);
  changed_.notify_all();
}

void DeviceWatch::remove(Subject& subject) noexcept {
  std::unique_lock lock(mutex_);
  std::erase(subjects_, &subject);
  looked_.wait(lock, [&] { return looks_at_ != &subject; });
}

void DeviceWatch::wake() noexcept {
  const std::lock_guard lock(mutex_);
  woken_ = true;
  changed_.notify_all();
}

void DeviceWatch::retire(std::shared_ptr<void> memory) {
  const std::lock_guard lock(mutex_);
  retired_.push_back(std::move(memory));
  changed_.notify_all();
}

void DeviceWatch::serve() {
  std::unique_lock lock(mutex_);
  const Allowing all(runtime_, DriverCalls::kAll);
  const auto is_called = [this] { return stop_ || woken_ || !retired_.empty(); };
  while (!stop_) {
    if (subjects_.empty()) {
      changed_.wait(lock, [&] { return is_called() || !subjects_.empty(); });
    } else {
      changed_.wait_for(lock, kLookEvery, is_called);
    }
    woken_ = false;
    give_back(lock);
    look_at_all(lock);
  }
}

void DeviceWatch::give_back(std::unique_lock<std::mutex>& lock) {
  std::vector<std::shared_ptr<void>> retired = std::exchange(retired_, {});
  lock.unlock();
  retired.clear();
  lock.lock();
}

/// One that is removed meanwhile is not looked at.
void DeviceWatch::look_at_all(std::unique_lock<std::mutex>& lock) {
  const std::vector<Subject*> all = subjects_;
  for (Subject* const subject : all) {
    if (std::find(subjects_.begin(), subjects_.end(), subject) == subjects_.end()) {
      continue;
    }
    looks_at_ = subject;
    lock.unlock();
    subject->look();
    lock.lock();
    looks_at_ = nullptr;
    looked_.notify_all();
  }
}

}  // namespace plexus
