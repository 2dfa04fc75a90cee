// SPDX-License-Identifier: Apache-2.0
// Other programs that the launcher runs: ip, nft, ss. It has no threads, so it may fork.
#pragma once

#include <string>
#include <vector>

namespace plexus::soak {

/// Runs the program with `input` on its standard input; it must end within seconds. Returns its
/// exit code, or -1 if it cannot be run or was ended. Its output is dropped.
int run_command(const std::vector<std::string>& arguments, const std::string& input = {});

}  // namespace plexus::soak
