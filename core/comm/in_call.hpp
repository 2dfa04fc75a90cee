// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/comm/communicator.hpp"
#include "core/os/asymmetric_fence.hpp"

namespace plexus {

/// Counts this thread as inside a communicator. Abort, in another thread, stores `stop` and waits
/// until nobody is inside. Without instructions that wait for earlier stores, and so for the lines
/// of the messages just sent. Threads: one at a time is inside a communicator.
class InCall {
 public:
  explicit InCall(Communicator& comm) noexcept : comm_(comm) {
    const int calls = comm.calls_.load(std::memory_order_relaxed);
    comm.calls_.store(calls + 1, std::memory_order_relaxed);
    light_fence();  // pairs with is_left(): it sees the call, or the call sees `stop`
    comm.calling_thread.note();
  }
  ~InCall() {
    const int calls = comm_.calls_.load(std::memory_order_relaxed);
    comm_.calls_.store(calls - 1, std::memory_order_release);
  }
  /// The communicator has failed, or was destroyed by ncclCommAbort before this thread was inside:
  /// only its flags may be looked at.
  [[nodiscard]] bool is_stopped() const noexcept {
    return comm_.stop.load(std::memory_order_acquire);
  }
  InCall(const InCall&) = delete;
  InCall& operator=(const InCall&) = delete;

 private:
  Communicator& comm_;
};

}  // namespace plexus
