// SPDX-License-Identifier: Apache-2.0
// A block of the device executor made of host threads.
#pragma once

#include <atomic>
#include <barrier>
#include <cstdint>

namespace plexus::test {

/// The barrier of a block's threads.
struct Rendezvous {
  explicit Rendezvous(uint32_t threads) : barrier(threads) {}
  std::barrier<> barrier;
  std::atomic<bool> sent{false};  // any() was true; stays set, because the block then ends
};

/// What the device executor asks of a thread that is its warp's only lane.
struct OneLane {
  [[nodiscard]] static uint32_t lanes() { return 1; }
  [[nodiscard]] static uint32_t lane() { return 0; }
  [[nodiscard]] static uint32_t take(uint32_t* counter, uint32_t amount) {
    return __atomic_fetch_add(counter, amount, __ATOMIC_RELAXED);
  }
  [[nodiscard]] static uint32_t share(uint32_t value) { return value; }
};

/// A block of host threads, as seen by one of them.
class HostBlock : public OneLane {
 public:
  HostBlock(uint32_t thread, uint32_t threads, Rendezvous& barrier)
      : thread_(thread), threads_(threads), barrier_(barrier) {}
  [[nodiscard]] uint32_t thread() const { return thread_; }
  [[nodiscard]] uint32_t threads() const { return threads_; }
  void sync() const {
    if (threads_ > 1) {
      barrier_.barrier.arrive_and_wait();
    }
  }
  [[nodiscard]] bool any(bool mine) const {
    if (mine) {
      barrier_.sent = true;
    }
    sync();
    const bool sent = barrier_.sent;
    sync();  // before any thread can set it again, all have read it
    if (thread_ == 0) {
      barrier_.sent = false;
    }
    sync();
    return sent;
  }

 private:
  uint32_t thread_;
  uint32_t threads_;
  Rendezvous& barrier_;
};

}  // namespace plexus::test
