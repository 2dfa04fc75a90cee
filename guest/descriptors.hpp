// SPDX-License-Identifier: Apache-2.0
// A program may run with descriptors 0 to 2 closed (daemons do). The next descriptor that anybody
// opens then has such a number, and what the program or one of its libraries prints is written into
// it. Descriptors of Plexus therefore never keep these numbers. What can be written to must not
// have one even for a moment: the core sees to that (core/base/stdio_held.hpp), for its own and for
// those that plugins open when it calls them.
//
//   const int fd = above_stdio(::open("/dev/null", O_RDONLY | O_CLOEXEC));  // -1 or at least 3
//   return fd;
#pragma once

#include <cerrno>
#include <fcntl.h>
#include <unistd.h>

namespace plexus {

/// `fd`, which the caller has just opened, or -1 with errno. One of 0 to 2 is replaced by a copy
/// with a higher number (close-on-exec) and closed; -1 with errno when there is none left.
inline int above_stdio(int fd) noexcept {
  if (fd < 0 || fd > STDERR_FILENO) {
    return fd;
  }
  const int higher = ::fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  const int error = errno;
  ::close(fd);
  errno = error;
  return higher;
}

}  // namespace plexus
