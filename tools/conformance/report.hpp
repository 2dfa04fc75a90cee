// SPDX-License-Identifier: Apache-2.0
// Verdicts as a table and a page for people, and as JSON and JUnit's XML for machines. Pure.
#pragma once

#include <string>
#include <vector>

#include "tools/conformance/runner.hpp"

namespace plexus::conformance {

struct Counts {
  size_t passed = 0;
  size_t failed = 0;  // that break jobs
  size_t weak = 0;
  size_t beyond = 0;
  size_t skipped = 0;
  size_t known = 0;
  /// For the exit code.
  [[nodiscard]] size_t bad(bool is_strict) const noexcept {
    return failed + (is_strict ? weak + beyond : 0);
  }
};
[[nodiscard]] Counts count(const std::vector<Verdict>& verdicts);
/// "3 passed, 1 failed, 2 weak, 0 skipped": what is not there is left out, but for the three that
/// everybody looks for.
[[nodiscard]] std::string format_counts(const Counts& counts);

/// "pass  recv.zero   0.1 s  title", and the reason of a skip on a line of its own.
[[nodiscard]] std::string format_verdict(const Verdict& verdict);
/// The failures by what they have in common: each cause once, with its checks and their rules.
[[nodiscard]] std::string format_failures(const std::vector<Verdict>& verdicts);

/// What was checked, for the head of a report.
struct ReportHead {
  std::string library;
  Identity identity;
  bool is_strict = false;
};
[[nodiscard]] std::string format_json(const ReportHead& head, const std::vector<Verdict>& verdicts);
/// A check is a test case. A failure that does not count for the exit code is a skipped one.
[[nodiscard]] std::string format_junit(const ReportHead& head,
                                       const std::vector<Verdict>& verdicts);
/// One page to send around, in Markdown.
[[nodiscard]] std::string format_summary(const ReportHead& head,
                                         const std::vector<Verdict>& verdicts);

/// Why a check failed, without what differs between checks that fail for the same reason: the
/// context before a failed call, and numbers.
[[nodiscard]] std::string find_cause(const std::string& detail);

}  // namespace plexus::conformance
