// SPDX-License-Identifier: Apache-2.0
// The descriptors over which this process communicates. If a child made by fork kept them open, the
// peers would not see the death of the parent, and a connection to the dead parent's port would
// wait for ever. The child therefore closes them at once, without sending anything.
#pragma once

#include <mutex>
#include <utility>
#include <vector>

#include "core/base/immortal.hpp"
#include "core/base/stdio_held.hpp"

namespace plexus {

/// Threads: any.
class OwnFds final : private ForkAware {
 public:
  static OwnFds& instance() { return Immortal<OwnFds>::instance(); }

  /// Calls `make`, which returns a new descriptor or -1 with errno, and registers the descriptor.
  /// `make` must not block.
  template <class Make>
  int open(const Make& make) {
    const StdioHeld held;  // has a lock of its own, so before this one
    const std::lock_guard lock(mutex_);
    fds_.reserve(fds_.size() + 1);  // before `make`, so that a failed allocation cannot lose a
                                    // descriptor
    const int fd = above_stdio(make());
    if (fd >= 0) {
      fds_.push_back(fd);
    }
    return fd;
  }
  /// Closes `fd`, which open() returned in this process (not in its parent).
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

/// Move-only owner of a descriptor that OwnFds::open() returned. In a child made by fork, whose
/// copy is closed, it does nothing.
class OwnFd {
 public:
  OwnFd() = default;
  explicit OwnFd(int fd) noexcept : fd_(fd) {}
  ~OwnFd() { close(); }
  OwnFd(OwnFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)), forks_(other.forks_) {}
  OwnFd& operator=(OwnFd&& other) noexcept {
    std::swap(fd_, other.fd_);
    std::swap(forks_, other.forks_);
    return *this;
  }
  [[nodiscard]] int get() const noexcept { return fd_; }
  void close() noexcept {
    const int fd = std::exchange(fd_, -1);
    if (fd >= 0 && forks_ == Forks::count()) {
      OwnFds::instance().close(fd);
    }
  }

 private:
  int fd_ = -1;
  uint64_t forks_ = Forks::count();  // when it was opened
};

}  // namespace plexus
