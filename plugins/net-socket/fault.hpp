// SPDX-License-Identifier: Apache-2.0
// The reason why a connection is broken. The first failure is kept; a connection stays broken.
#pragma once

#include <atomic>
#include <cerrno>
#include <mutex>
#include <optional>

#include "plugins/net-socket/settings.hpp"

namespace plexus::net_socket {

/// Threads: any.
class Fault {
 public:
  void set(Failure failure) {
    const std::scoped_lock lock(mutex_);
    if (!failure_) {
      failure_ = std::move(failure);
      is_set_.store(true, std::memory_order_release);  // pairs with the acquire in is_set()
    }
  }
  [[nodiscard]] bool is_set() const noexcept { return is_set_.load(std::memory_order_acquire); }
  /// Requires is_set().
  [[nodiscard]] const Failure& failure() const noexcept { return *failure_; }

 private:
  std::atomic<bool> is_set_{false};
  std::mutex mutex_;
  std::optional<Failure> failure_;  // constant after is_set_
};

/// Whether the error means that nothing moved, which is no failure.
[[nodiscard]] inline bool is_would_block(int error) noexcept {
  return error == EAGAIN || error == EWOULDBLOCK || error == EINTR;
}

}  // namespace plexus::net_socket
