// SPDX-License-Identifier: Apache-2.0
// What fork means for this library: the child has the memory of its parent, but none of its
// threads, and its peers do not know it. So all that the parent has made stays the parent's; the
// child leaves it as it is and makes its own. Forks are noticed by pthread_atfork: a child of vfork
// or posix_spawn, which does nothing but exec, is none; nor is one of a bare clone system call.
#pragma once

#include <atomic>
#include <cstdint>

namespace plexus {

/// First argument of constructors that make a child's object from its parent's (Immortal).
struct AfterFork {};

/// An object of the process that must be at rest while it forks. It lives as long as the process.
class ForkAware {
 public:
  ForkAware() = default;
  ForkAware(const ForkAware&) = delete;
  ForkAware& operator=(const ForkAware&) = delete;

  /// Before: takes the locks. No thread may hold them while it waits for something.
  virtual void hold() noexcept = 0;
  /// After, in the parent.
  virtual void release() noexcept = 0;
  /// After, in the child: lets go of the locks. From here on nobody uses the object but who takes
  /// after it (AfterFork).
  virtual void leave() noexcept = 0;

 protected:
  ~ForkAware() = default;

 private:
  friend class Forks;
  ForkAware* next_ = nullptr;
};

class Forks {
 public:
  /// How many forks made this process out of the one that loaded the library. Cheap.
  static uint64_t count() noexcept { return count_.load(std::memory_order_relaxed); }
  /// Waits for a fork that is under way. From here on until the next fork `object` is asked.
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
