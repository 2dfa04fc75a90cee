// SPDX-License-Identifier: Apache-2.0
#include "core/os/own_fds.hpp"

#include <algorithm>
#include <unistd.h>

namespace plexus {

void OwnFds::close(int fd) noexcept {
  // Closing and removing are one step with respect to fork: the kernel may reuse the number as soon
  // as it is closed.
  const std::lock_guard lock(mutex_);
  std::erase(fds_, fd);
  ::close(fd);
}

void OwnFds::leave() noexcept {
  for (const int fd : fds_) {
    ::close(fd);
  }
  mutex_.unlock();
}

}  // namespace plexus
