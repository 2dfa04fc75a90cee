// SPDX-License-Identifier: Apache-2.0
#include "core/base/fork.hpp"

#include <mutex>
#include <pthread.h>

namespace plexus {
namespace {

/// Held by the forking thread from before fork() until after it.
std::mutex& fork_mutex() noexcept {
  static constinit std::mutex mutex;
  return mutex;
}

}  // namespace

// NOLINTBEGIN(cppcoreguidelines-avoid-non-const-global-variables): see fork.hpp
constinit std::atomic<uint64_t> Forks::count_{0};
constinit ForkAware* Forks::first_ = nullptr;
// NOLINTEND(cppcoreguidelines-avoid-non-const-global-variables)
/// Installed when the library is loaded, because at any later moment another thread could be
/// forking.
const int Forks::watched_ = Forks::watch();

int Forks::watch() noexcept {
  return pthread_atfork([] { prepare(); }, [] { go_on_in_parent(); }, [] { begin_in_child(); });
}

void Forks::add(ForkAware& object) noexcept {
  const std::lock_guard lock(fork_mutex());
  object.next_ = first_;
  first_ = &object;
}

void Forks::prepare() noexcept {
  fork_mutex().lock();
  for (ForkAware* object = first_; object != nullptr; object = object->next_) {
    object->hold();
  }
}

void Forks::go_on_in_parent() noexcept {
  for (ForkAware* object = first_; object != nullptr; object = object->next_) {
    object->release();
  }
  fork_mutex().unlock();
}

/// Runs in the child's only thread. Objects that the child makes add themselves again.
void Forks::begin_in_child() noexcept {
  count_.store(count() + 1, std::memory_order_relaxed);
  for (ForkAware* object = first_; object != nullptr; object = object->next_) {
    object->leave();
  }
  first_ = nullptr;
  fork_mutex().unlock();
}

}  // namespace plexus
