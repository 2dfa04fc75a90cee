// SPDX-License-Identifier: Apache-2.0
// Threads of Plexus in a program that has not asked for them. A signal that the program means to
// take in a thread of its own (sigwait, signalfd, a handler) must not be delivered to one of ours,
// and its floating-point traps are not for our arithmetic.
#pragma once

#include <cfenv>
#include <csignal>
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

}  // namespace plexus
