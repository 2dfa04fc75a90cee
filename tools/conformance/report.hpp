// SPDX-License-Identifier: Apache-2.0
// Output of verdicts: as a table, as a page, as JSON and as JUnit XML. Pure.
#pragma once

#include <string>
#include <vector>

#include "tools/conformance/runner.hpp"

namespace plexus::conformance {

struct Counts {
  size_t passed = 0;
  size_t failed = 0;  // failures that break jobs
  size_t weak = 0;
  size_t beyond = 0;
  size_t skipped = 0;
  size_t known = 0;
  /// Number of failures that count for the exit code.
  [[nodiscard]] size_t bad(bool is_strict) const noexcept {
    return failed + (is_strict ? weak + beyond : 0);
  }
};
[[nodiscard]] Counts count(const std::vector<Verdict>& verdicts);
/// "3 passed, 1 failed, 2 weak, 0 skipped": zero counts are left out, except the three most
/// important ones.
[[nodiscard]] std::string format_counts(const Counts& counts);

/// "pass", "skip", "known", or what grade_verdict() says of a failure.
[[nodiscard]] const char* word_of(const Verdict& verdict);
/// "pass  recv.zero   0.1 s  title", with the reason of a skip on a separate line.
[[nodiscard]] std::string format_verdict(const Verdict& verdict);
/// The failures grouped by cause: each cause once, with its checks and their rules.
[[nodiscard]] std::string format_failures(const std::vector<Verdict>& verdicts);

/// What was checked, for the heading of a report.
struct ReportHead {
  std::string library;
  Identity identity;
  bool is_strict = false;
};
[[nodiscard]] std::string format_json(const ReportHead& head, const std::vector<Verdict>& verdicts);
/// A check is a test case. A failure that does not count for the exit code is reported as skipped.
[[nodiscard]] std::string format_junit(const ReportHead& head,
                                       const std::vector<Verdict>& verdicts);
/// A summary on one page, in Markdown.
[[nodiscard]] std::string format_summary(const ReportHead& head,
                                         const std::vector<Verdict>& verdicts);

/// The reason of a failure without the parts that differ between checks with the same cause: the
/// context before a failed call, and numbers.
[[nodiscard]] std::string find_cause(const std::string& detail);

}  // namespace plexus::conformance
