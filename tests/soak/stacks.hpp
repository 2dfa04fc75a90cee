// SPDX-License-Identifier: Apache-2.0
// What the threads of a process are doing, by gdb where it is installed.
#pragma once

#include <string>
#include <sys/types.h>

namespace plexus::soak {

/// "" when there is no gdb, or it takes too long. `folder`: for its output.
std::string stacks_of(pid_t pid, const std::string& folder);

}  // namespace plexus::soak
