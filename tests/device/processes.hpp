// SPDX-License-Identifier: Apache-2.0
// Ranks in separate processes for tests: the program starts itself once for each rank, with a role
// (role.hpp).
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace plexus::testing_device {

using Environment = std::vector<std::pair<std::string, std::string>>;

/// Exit code of the role all_reduce when a sum was wrong.
inline constexpr int kWrongSum = 3;

/// Starts `on.size()` ranks of `role`, rank r on device on[r] (-1: the host), and waits for them.
/// "{}" in the environment is replaced by the rank. Returns their logs. All must end with
/// `exit_code`.
std::vector<std::string> run_processes(const std::string& role,
                                       const std::vector<int>& on,
                                       const Environment& environment,
                                       int exit_code = 0);

}  // namespace plexus::testing_device
