// SPDX-License-Identifier: Apache-2.0
// A process that can open no more files.
#pragma once

#include <cstddef>
#include <sys/resource.h>
#include <unistd.h>
#include <vector>

namespace plexus::test {

/// While it exists, this process can have no more descriptors than `left`.
class NoDescriptors {
 public:
  explicit NoDescriptors(size_t left = 0) {
    getrlimit(RLIMIT_NOFILE, &before_);
    const rlimit tight{kLimit, before_.rlim_max};
    setrlimit(RLIMIT_NOFILE, &tight);
    for (int fd = dup(STDERR_FILENO); fd >= 0; fd = dup(STDERR_FILENO)) {
      taken_.push_back(fd);
    }
    for (; left > 0 && !taken_.empty(); --left) {
      close(taken_.back());
      taken_.pop_back();
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
