// SPDX-License-Identifier: Apache-2.0
// Memory that cannot be had, as an error like others. For the threads of the library, which nobody
// else's handler surrounds.
#pragma once

#include <chrono>
#include <new>
#include <thread>

#include "core/base/result.hpp"

namespace plexus {

/// kSystemError.
[[nodiscard]] inline Error describe_lack_of_memory() {
  return fail(Code::kSystemError,
              "no memory is left for this communicator; raise the limit (ulimit -v, memory.max of "
              "the cgroup), lower NCCL_BUFFSIZE, or run fewer ranks here");
}

/// What `call` returns, or that error if it throws std::bad_alloc.
template <class Call>
auto catch_lack_of_memory(const Call& call) -> decltype(call()) {
  try {
    return call();
  } catch (const std::bad_alloc&) {
    return describe_lack_of_memory();
  }
}

/// What `call` returns, which needs little memory: tried again while there is none, for a second.
/// For steps without which other ranks would wait in vain.
template <class Call>
auto insist_on_memory(const Call& call) -> decltype(call()) {
  constexpr int kTries = 1000;
  for (int i = 1; i < kTries; ++i) {
    try {
      return call();
    } catch (const std::bad_alloc&) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));  // others may free some
    }
  }
  return call();
}

}  // namespace plexus
