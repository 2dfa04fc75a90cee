// SPDX-License-Identifier: Apache-2.0
// What fork means for this library. The child has a copy of its parent's memory but none of its
// threads, and its peers do not know it. Whatever the parent made therefore stays the parent's: the
// child leaves it untouched and makes its own. Forks are noticed by pthread_atfork, so children of
// vfork, posix_spawn (which only exec) and of a direct clone system call are not noticed.
#pragma once

#include <atomic>
#include <cstdint>

namespace plexus {

/// Tag: first argument of a constructor that makes the child's object from its parent's (Immortal).
struct AfterFork {};

/// An object of the process whose locks must be held while the process forks. It lives as long as
/// the process.
class ForkAware {
 public:
  ForkAware() = default;
  ForkAware(const ForkAware&) = delete;
  ForkAware& operator=(const ForkAware&) = delete;

  /// Before the fork: takes the locks. No thread may wait for something while it holds one of them.
  virtual void hold() noexcept = 0;
  /// After the fork, in the parent: releases the locks.
  virtual void release() noexcept = 0;
  /// After the fork, in the child: releases the locks. From here on only the object that replaces
  /// it in the child (AfterFork) uses this one.
  virtual void leave() noexcept = 0;

 protected:
  ~ForkAware() = default;

 private:
  friend class Forks;
  ForkAware* next_ = nullptr;
};

class Forks {
 public:
  /// Number of forks between the process that loaded the library and this one. Cheap.
  static uint64_t count() noexcept { return count_.load(std::memory_order_relaxed); }
  /// Registers `object` for all forks of this process. Waits for a fork that is under way.
  static void add(ForkAware& object) noexcept;

  Forks() = delete;

 private:
  static void prepare() noexcept;
  static void go_on_in_parent() noexcept;
  static void begin_in_child() noexcept;
  static int watch() noexcept;

  // NOLINTBEGIN(cppcoreguidelines-avoid-non-const-global-variables,readability-identifier-naming):
  // facts of the process
  static std::atomic<uint64_t> count_;
  static ForkAware* first_;  // guarded by the lock that a fork holds
  static const int watched_;
  // NOLINTEND(cppcoreguidelines-avoid-non-const-global-variables,readability-identifier-naming)
};

}  // namespace plexus
