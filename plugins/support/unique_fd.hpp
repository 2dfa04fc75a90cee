// SPDX-License-Identifier: Apache-2.0
// An owned file descriptor. A child made by fork closes its copy at once, so that peers see the end
// of this process instead of that of the last child. The owner in the child then does nothing.
//
//   const auto fd =
//       plexus::plugin::UniqueFd::open([] { return ::open("/dev/null", O_RDONLY | O_CLOEXEC); });
//   return fd.get();  // closed by its owner, not kept below 3
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <pthread.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include "guest/descriptors.hpp"

namespace plexus::plugin {

/// All descriptors of this library. Threads: any.
class OpenFds {
 public:
  /// Calls `make`, which returns a new descriptor or -1 with errno, and registers the descriptor.
  /// `make` must not block.
  template <class Make>
  static int open(const Make& make) {
    const std::lock_guard lock(mutex_);
    reserve();  // before `make`, so that a failed allocation cannot lose a descriptor
    const int fd = above_stdio(make());
    if (fd >= 0) {
      fds_->push_back(fd);
    }
    return fd;
  }
  static void close(int fd) noexcept {
    // Closing and removing are one step with respect to fork: the kernel may reuse the number as
    // soon as it is closed.
    const std::lock_guard lock(mutex_);
    std::erase(*fds_, fd);
    ::close(fd);
  }
  /// Descriptors that another library opens and closes: children close them between the two calls.
  static void watch(int fd) {
    const std::lock_guard lock(mutex_);
    reserve();
    fds_->push_back(fd);
  }
  static void forget(int fd) noexcept {
    const std::lock_guard lock(mutex_);
    if (fds_ != nullptr) {
      std::erase(*fds_, fd);
    }
  }
  /// Number of forks between the process that loaded the library and this one.
  static uint64_t forks() noexcept { return forks_; }

 private:
  /// Room for one more. Requires mutex_.
  static void reserve() {
    if (fds_ == nullptr) {
      fds_ = new std::vector<int>;  // NOLINT(*-owning-memory): other threads may outlive exit
    }
    fds_->reserve(fds_->size() + 1);
  }
  static void hold() noexcept { mutex_.lock(); }
  static void release() noexcept { mutex_.unlock(); }
  static void begin_in_child() noexcept {
    ++forks_;
    if (fds_ != nullptr) {
      for (const int fd : *fds_) {
        ::close(fd);
      }
      fds_->clear();
    }
    mutex_.unlock();
  }
  // NOLINTBEGIN(cppcoreguidelines-avoid-non-const-global-variables,readability-identifier-naming):
  // facts of the process; private, though the check takes them for global
  static inline constinit std::mutex mutex_;
  static inline constinit std::vector<int>* fds_ = nullptr;  // guarded by mutex_
  static inline constinit uint64_t forks_ = 0;               // changes only when a child starts
  static inline const int watched_ = ::pthread_atfork(&hold, &release, &begin_in_child);
  // NOLINTEND(cppcoreguidelines-avoid-non-const-global-variables,readability-identifier-naming)
};

class UniqueFd {
 public:
  UniqueFd() noexcept = default;
  /// Owns the descriptor that `make` returns (OpenFds::open); -1: none.
  template <class Make>
  [[nodiscard]] static UniqueFd open(const Make& make) {
    return UniqueFd(OpenFds::open(make));
  }
  UniqueFd(UniqueFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)), forks_(other.forks_) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    std::swap(fd_, other.fd_);
    std::swap(forks_, other.forks_);
    return *this;
  }
  ~UniqueFd() { reset(); }

  [[nodiscard]] int get() const noexcept { return fd_; }
  [[nodiscard]] bool is_open() const noexcept { return fd_ >= 0; }
  void reset() noexcept {
    const int fd = std::exchange(fd_, -1);
    if (fd >= 0 && forks_ == OpenFds::forks()) {
      OpenFds::close(fd);
    }
  }

 private:
  explicit UniqueFd(int fd) noexcept : fd_(fd) {}
  int fd_ = -1;
  uint64_t forks_ = OpenFds::forks();  // forks() when it was opened
};

}  // namespace plexus::plugin
