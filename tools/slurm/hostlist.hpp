// SPDX-License-Identifier: Apache-2.0
// Slurm's lists of hosts and switches: "a[00-07,9],rack[1-2]n[0-3] b". Commas, spaces and tabs
// outside brackets separate; a number is written with at least as many digits as the lower bound.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.hpp"

namespace plexus {

/// One entry of a list: a text, then numbers that each have a text behind them.
struct HostEntry {
  struct Range {
    uint64_t low;
    uint64_t high;
    int width;  // least number of digits
  };
  struct Numbers {
    std::vector<Range> ranges;
    std::string behind;
  };
  std::string head;
  std::vector<Numbers> numbers;

  /// As a list that names the same, which a fabric file's pattern understands.
  [[nodiscard]] std::string to_string() const;
  /// Appends the names. False: they would be more than `names_max`.
  [[nodiscard]] bool expand(std::vector<std::string>& names, size_t names_max) const;
  /// Whether a host can have such a name. Slurm takes others too, and then ignores them.
  [[nodiscard]] bool may_name_hosts() const;
};

/// kInvalidUsage: what Slurm rejects, in words.
Result<std::vector<HostEntry>> parse_hostlist(std::string_view list);

}  // namespace plexus
