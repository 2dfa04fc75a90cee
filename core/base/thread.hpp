// SPDX-License-Identifier: Apache-2.0
// Starting threads. All of core/ starts threads here, because a system may refuse a thread at any
// time and std::thread then throws. They block all signals (guest/thread.hpp).
//
//   PLEXUS_TRY(thread, start_thread("watch the peers", [] { /* runs with all signals blocked */
//   })); thread.join(); return ok();
#pragma once

#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

#include "core/base/result.hpp"
#include "guest/thread.hpp"

namespace plexus {

/// kSystemError that names the limits behind a refusal. `purpose`: what the thread was to do.
Error describe_refused_thread(std::string_view purpose, const std::system_error& refusal);

/// Starts a thread that runs `body`. When the system refuses it, `body` is destroyed without having
/// run.
template <class Body>
Result<std::thread> start_thread(std::string_view purpose, Body&& body) {
  try {
    return make_guest_thread(std::forward<Body>(body));
  } catch (const std::system_error& refusal) {
    return describe_refused_thread(purpose, refusal);
  }
}

}  // namespace plexus
