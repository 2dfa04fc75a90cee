// SPDX-License-Identifier: Apache-2.0
// What the control plane asks of those who use it.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>

namespace plexus {

/// Called with the lock of the agent held: short, and without calls of core/control.
struct AgentHooks {
  /// What keeps the ranks of this process from calling, for those that wait for them; "": unknown.
  std::function<std::string()> explain = [] { return std::string(); };
  /// The records (Exchange::leave) of ranks that have left a group of `nranks` in order: of two,
  /// and of all once a process has them. True: nothing more is to be compared.
  using Records = std::map<int, std::string_view>;  // by rank of the group
  std::function<bool(uint64_t group, size_t nranks, const Records& records)> compare =
      [](uint64_t, size_t, const Records&) { return true; };
};

}  // namespace plexus
