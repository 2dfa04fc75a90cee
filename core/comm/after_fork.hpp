// SPDX-License-Identifier: Apache-2.0
// Handles in a child made by fork: what the parent made stays the parent's. The child may give it
// back, which does nothing; all else is refused.
#pragma once

#include <cstdint>

#include "core/base/result.hpp"

namespace plexus {

class Communicator;

/// The process that made `comm`, and from which this one was forked; 0: not so.
int32_t parent_of(const Communicator* comm) noexcept;
/// Ends the handle in this process; the parent's is not touched.
void forget(Communicator* comm) noexcept;
/// The error of a call on such a handle that does more than give it back.
Error made_before_fork(const char* what, int32_t pid);

}  // namespace plexus
