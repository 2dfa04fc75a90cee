// SPDX-License-Identifier: Apache-2.0
// Starting threads: all of core/ starts them here. A system may refuse one at any time, and then
// std::thread throws.
#pragma once

#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

#include "core/base/result.hpp"

namespace plexus {

/// kSystemError with the limits that a refusal comes from. `purpose`: what the thread was for.
Error describe_refused_thread(std::string_view purpose, const std::system_error& refusal);

/// A thread that runs `body`. When it is refused, `body` is gone and has not run.
template <class Body>
Result<std::thread> start_thread(std::string_view purpose, Body&& body) {
  try {
    return std::thread(std::forward<Body>(body));
  } catch (const std::system_error& refusal) {
    return describe_refused_thread(purpose, refusal);
  }
}

}  // namespace plexus
