// SPDX-License-Identifier: Apache-2.0
#include "core/comm/after_fork.hpp"

#include "core/comm/communicator.hpp"

namespace plexus {

int32_t parent_of(const Communicator* comm) noexcept {
  if (comm == nullptr || Forks::count() == 0) {
    return 0;
  }
  const uint64_t magic = comm->magic.load(std::memory_order_relaxed);
  const bool is_older = magic - Communicator::kMagic < Forks::count();  // of a dead one, no
  return is_older ? comm->maker : 0;
}

void forget(Communicator* comm) noexcept { comm->magic.store(0, std::memory_order_relaxed); }

Error made_before_fork(const char* what, int32_t pid) {
  return fail(Code::kInvalidUsage,
              "the {} was created by process {} before this process was forked from it: create one "
              "in this process",
              what, pid);
}

}  // namespace plexus
