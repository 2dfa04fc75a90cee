// SPDX-License-Identifier: Apache-2.0
// What a process's threads do: their states, and their stacks from gdb if it is installed.
#pragma once

#include <string>
#include <sys/types.h>

namespace plexus::soak {

/// Without stacks if there is no gdb or it took too long. `folder`: for its output.
std::string stacks_of(pid_t pid, const std::string& folder);

}  // namespace plexus::soak
