// SPDX-License-Identifier: Apache-2.0
// Verdicts as a table for people and as JSON for scripts. Pure.
#pragma once

#include <string>
#include <vector>

#include "tools/conformance/runner.hpp"

namespace plexus::conformance {

struct Counts {
  size_t passed = 0;
  size_t failed = 0;
  size_t skipped = 0;
  size_t known = 0;
};
[[nodiscard]] Counts count(const std::vector<Verdict>& verdicts);

/// "pass  recv.zero   title", and for others the reason and the rule on lines of their own.
[[nodiscard]] std::string format_verdict(const Verdict& verdict);
[[nodiscard]] std::string format_json(const std::string& library,
                                      const Identity& identity,
                                      const std::vector<Verdict>& verdicts);

}  // namespace plexus::conformance
