// SPDX-License-Identifier: Apache-2.0
// Threads and descriptors in a program that has not asked for them: its signals are for its own
// threads, and numbers 0 to 2 for its own files. As guest/ of Plexus, which is not installed.
#pragma once

#include <csignal>
#include <fcntl.h>
#include <pthread.h>
#include <thread>
#include <unistd.h>
#include <utility>

namespace torch_plexus {

/// A thread that blocks all signals. Throws as std::thread does.
template <class Body>
std::thread start_quiet_thread(Body&& body) {
  struct Blocked {
    Blocked() {
      sigset_t all;
      sigfillset(&all);
      pthread_sigmask(SIG_SETMASK, &all, &before);
    }
    ~Blocked() { pthread_sigmask(SIG_SETMASK, &before, nullptr); }
    sigset_t before;
  } blocked;
  return std::thread(std::forward<Body>(body));
}

/// `fd`, just made, or -1; one of 0 to 2 is replaced by a higher one.
inline int above_stdio(int fd) noexcept {
  if (fd < 0 || fd > STDERR_FILENO) {
    return fd;
  }
  const int higher = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  ::close(fd);
  return higher;
}

}  // namespace torch_plexus
