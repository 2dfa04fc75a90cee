// SPDX-License-Identifier: Apache-2.0
// The descriptors by which this process speaks with others. A child made by fork would keep them
// open: its parent's death would not be seen by the peers, and who connects to the dead would wait
// for ever. So a child closes them at once, without a word to the peers.
#pragma once

#include <mutex>
#include <vector>

#include "core/base/immortal.hpp"

namespace plexus {

/// Threads: any.
class OwnFds final : private ForkAware {
 public:
  static OwnFds& instance() { return Immortal<OwnFds>::instance(); }

  /// Calls `make`, which returns a new descriptor or -1 with errno, and must not block.
  template <class Make>
  int open(const Make& make) {
    const std::lock_guard lock(mutex_);
    fds_.reserve(fds_.size() + 1);  // before there is one to lose
    const int fd = make();
    if (fd >= 0) {
      fds_.push_back(fd);
    }
    return fd;
  }
  /// Of this process, and not of its parent.
  void close(int fd) noexcept;

 private:
  friend class Immortal<OwnFds>;
  OwnFds() { Forks::add(*this); }
  void hold() noexcept override { mutex_.lock(); }
  void release() noexcept override { mutex_.unlock(); }
  void leave() noexcept override;

  std::mutex mutex_;
  std::vector<int> fds_;  // guarded by mutex_
};

}  // namespace plexus
