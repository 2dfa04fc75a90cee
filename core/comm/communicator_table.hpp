// SPDX-License-Identifier: Apache-2.0
// The communicators of one process: which handles are live, and the memory of communicators that
// ended. A stale handle is looked at before anything else (Communicator::is_live), so that memory
// stays mapped, and goes to later communicators.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <set>
#include <vector>

namespace plexus {

class Communicator;

/// Threads: any.
class CommunicatorTable {
 public:
  void add(Communicator* comm);
  /// False: it was removed before, or never added.
  bool remove(Communicator* comm);

  /// Counts a visit of `comm`, any address (see Visit). False: it is not live.
  bool add_visit(Communicator* comm);

  /// Counts a visit of each live one that `matches` accepts.
  std::vector<Communicator*> add_visits(const std::function<bool(const Communicator&)>& matches);

  /// Is there a live one that `matches` accepts? It stays live until this returns.
  bool any(const std::function<bool(const Communicator&)>& matches);

  /// 1, 2, ... in the order in which communicators are made. newest(): the last one given.
  uint64_t next_number() noexcept { return numbers_.fetch_add(1, std::memory_order_relaxed) + 1; }
  [[nodiscard]] uint64_t newest() const noexcept {
    return numbers_.load(std::memory_order_relaxed);
  }

  void* take_memory();
  void give_back(void* memory) noexcept;

  /// Called before and after fork, as those of ForkAware.
  void hold() noexcept { mutex_.lock(); }
  void release() noexcept { mutex_.unlock(); }

 private:
  std::mutex mutex_;
  std::set<Communicator*> live_;  // guarded by mutex_
  std::vector<void*> free_;       // likewise
  std::atomic<uint64_t> numbers_{0};
};

}  // namespace plexus
