// SPDX-License-Identifier: Apache-2.0
// Stacks of a process's threads, from gdb if it is installed.
#pragma once

#include <string>
#include <sys/types.h>

namespace plexus::soak {

/// "": no gdb, or it took too long. `folder`: for its output.
std::string stacks_of(pid_t pid, const std::string& folder);

}  // namespace plexus::soak
