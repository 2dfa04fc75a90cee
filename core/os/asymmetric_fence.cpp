// SPDX-License-Identifier: Apache-2.0
#include "core/os/asymmetric_fence.hpp"

#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace plexus {
namespace {

bool request(int command) noexcept { return syscall(SYS_membarrier, command, 0, 0) == 0; }

}  // namespace

// A child made by fork is registered as its parent was.
const bool asymmetric::is_possible =
    request(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) && request(MEMBARRIER_CMD_PRIVATE_EXPEDITED);

void heavy_fence() noexcept {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (asymmetric::is_possible && !request(MEMBARRIER_CMD_PRIVATE_EXPEDITED) &&
      request(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED)) {
    request(MEMBARRIER_CMD_PRIVATE_EXPEDITED);
  }
}

}  // namespace plexus
