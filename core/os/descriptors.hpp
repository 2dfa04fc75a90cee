// SPDX-License-Identifier: Apache-2.0
// The limit of open files: errors for calls that it refuses, and raising it.
#pragma once

#include <cerrno>
#include <string_view>

#include "core/base/result.hpp"

namespace plexus {

/// kSystemError for a call that was to return a descriptor and failed with errno `error`. Names the
/// limit when that is the reason. `what`: "cannot make a socket".
Error describe_refused_descriptor(std::string_view what, int error = errno);

/// Raises this process's soft limit of open files to its hard limit.
void raise_descriptor_limit() noexcept;

}  // namespace plexus
