// SPDX-License-Identifier: Apache-2.0
// Threads that do what takes its time in the order of streams: copies, and host functions of the
// user. The thread that moves the data of all streams only hands work to them.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace plexus::cudart {

/// Threads: any.
class Worker {
 public:
  /// Up to `threads` are started, when there is work for them.
  Worker(std::string purpose, int threads) : purpose_(std::move(purpose)), threads_max_(threads) {}
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  /// Jobs begin in this order. In the calling thread if the system refuses the first thread.
  void post(std::function<void()> job);
  /// Is the calling thread one of a worker?
  static bool is_current() noexcept;

 private:
  void serve();

  const std::string purpose_;
  const int threads_max_;
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::deque<std::function<void()>> jobs_;  // guarded by mutex_, as all below
  std::vector<std::thread> threads_;        // never joined: the object lives as long as the process
  int idle_ = 0;
};

}  // namespace plexus::cudart
