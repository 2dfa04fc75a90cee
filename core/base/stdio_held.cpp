// SPDX-License-Identifier: Apache-2.0
#include "core/base/stdio_held.hpp"

#include <array>
#include <cerrno>
#include <fcntl.h>
#include <mutex>
#include <unistd.h>

#include "core/base/immortal.hpp"

namespace plexus {
namespace {

/// One per process; several threads may be in calls of libraries at once. Threads: any.
class Placeholders final : private ForkAware {
 public:
  static Placeholders& instance() { return Immortal<Placeholders>::instance(); }

  void add_user() noexcept {
    const std::lock_guard lock(mutex_);
    if (users_++ != 0) {
      return;
    }
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd) {
      if (fcntl(fd, F_GETFD) < 0) {
        take(fd);
      }
    }
  }
  void remove_user() noexcept {
    const std::lock_guard lock(mutex_);
    if (--users_ == 0) {
      give_back();
    }
  }

 private:
  friend class Immortal<Placeholders>;
  Placeholders() { Forks::add(*this); }
  void hold() noexcept override { mutex_.lock(); }
  void release() noexcept override { mutex_.unlock(); }
  void leave() noexcept override {
    give_back();
    mutex_.unlock();
  }

  void take(int fd) noexcept {
    const int made = open("/", O_PATH | O_CLOEXEC);
    if (made == fd) {
      held_[static_cast<size_t>(fd)] = true;
    } else if (made >= 0) {  // the program has opened something there meanwhile
      close(made);
    }
  }
  void give_back() noexcept {
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd) {
      bool& is_held = held_[static_cast<size_t>(fd)];
      const int flags = is_held ? fcntl(fd, F_GETFL) : -1;
      if (flags >= 0 && (flags & O_PATH) != 0) {  // else the program has put another there
        close(fd);
      }
      is_held = false;
    }
  }

  std::mutex mutex_;
  int users_ = 0;               // guarded by mutex_
  std::array<bool, 3> held_{};  // guarded by mutex_
};

}  // namespace

StdioHeld::StdioHeld() noexcept { Placeholders::instance().add_user(); }
StdioHeld::~StdioHeld() {
  const int error = errno;
  Placeholders::instance().remove_user();
  errno = error;
}

}  // namespace plexus
