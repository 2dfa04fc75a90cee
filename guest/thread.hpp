// SPDX-License-Identifier: Apache-2.0
// Threads of Plexus in a program that has not asked for them. A signal that the program means to
// take in a thread of its own (sigwait, signalfd, a handler) must not be delivered to one of ours,
// and its floating-point traps are not for our arithmetic.
//
//   std::thread thread = make_guest_thread([] { /* no signal of the program arrives here */ });
//   thread.join();
#pragma once

#include <cfenv>
#include <csignal>
#include <cstddef>
#include <exception>
#include <pthread.h>
#include <thread>
#include <utility>

namespace plexus {

/// While it lives, the calling thread blocks all signals; threads that it starts, or that a library
/// starts for it, inherit that.
class SignalsBlocked {
 public:
  SignalsBlocked() noexcept {
    sigset_t all;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_{};
};

/// A thread that runs `body` with all signals blocked and the default floating-point environment.
/// Throws as std::thread does.
template <class Body>
std::thread make_guest_thread(Body&& body) {
  const SignalsBlocked blocked;
  return std::thread([run = std::forward<Body>(body)]() mutable {
    std::fesetenv(FE_DFL_ENV);
    std::move(run)();
  });
}

/// Runs `body` to its end with a stack of so many bytes, for a recursion that may be too deep for
/// that of the program's thread; on the caller's where the system refuses a thread. What it throws
/// is thrown here.
template <class Body>
void run_with_stack(size_t size_bytes, Body body) {
  struct Run {
    Body& body;
    std::exception_ptr thrown;
    static void* start(void* argument) {
      Run& own = *static_cast<Run*>(argument);
      std::fesetenv(FE_DFL_ENV);
      try {
        own.body();
      } catch (...) {
        own.thrown = std::current_exception();
      }
      return nullptr;
    }
  };
  Run own{.body = body, .thrown = nullptr};
  pthread_t thread{};
  bool has_started = false;
  pthread_attr_t attributes;
  if (::pthread_attr_init(&attributes) == 0) {
    const SignalsBlocked blocked;
    has_started = ::pthread_attr_setstacksize(&attributes, size_bytes) == 0 &&
                  ::pthread_create(&thread, &attributes, Run::start, &own) == 0;
    ::pthread_attr_destroy(&attributes);
  }
  if (!has_started) {
    body();
    return;
  }
  ::pthread_join(thread, nullptr);
  if (own.thrown != nullptr) {
    std::rethrow_exception(own.thrown);
  }
}

}  // namespace plexus
