// SPDX-License-Identifier: Apache-2.0
// A process that can open no more files.
#pragma once

#include <sys/resource.h>
#include <unistd.h>
#include <vector>

namespace plexus::test {

/// While it exists, this process can have no more descriptors.
class NoDescriptors {
 public:
  NoDescriptors() {
    getrlimit(RLIMIT_NOFILE, &before_);
    const rlimit tight{kLimit, before_.rlim_max};
    setrlimit(RLIMIT_NOFILE, &tight);
    for (int fd = dup(STDERR_FILENO); fd >= 0; fd = dup(STDERR_FILENO)) {
      taken_.push_back(fd);
    }
  }
  ~NoDescriptors() {
    for (const int fd : taken_) {
      close(fd);
    }
    setrlimit(RLIMIT_NOFILE, &before_);
  }
  NoDescriptors(const NoDescriptors&) = delete;
  NoDescriptors& operator=(const NoDescriptors&) = delete;

 private:
  static constexpr rlim_t kLimit = 64;
  rlimit before_{};
  std::vector<int> taken_;
};

}  // namespace plexus::test
