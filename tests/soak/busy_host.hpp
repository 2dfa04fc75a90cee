// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <thread>
#include <vector>

namespace plexus::soak {

/// Threads that keep the cores busy while the host is measured; until the end of the process.
class BusyHost {
 public:
  explicit BusyHost(bool is_busy) {
    constexpr int kThreads = 6;
    for (int i = 0; i < (is_busy ? kThreads : 0); ++i) {
      threads_.emplace_back([this] {
        while (!is_over_.load(std::memory_order_relaxed)) {
        }
      });
    }
  }
  ~BusyHost() {
    is_over_.store(true);
    for (std::thread& thread : threads_) {
      thread.join();
    }
  }
  BusyHost(const BusyHost&) = delete;
  BusyHost& operator=(const BusyHost&) = delete;

 private:
  std::atomic<bool> is_over_{false};
  std::vector<std::thread> threads_;
};

}  // namespace plexus::soak
