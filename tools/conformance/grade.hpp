// SPDX-License-Identifier: Apache-2.0
// What it means that a plugin fails a check. NCCL's contract is what NCCL does, and what its own
// transports do well under it: a check that asks for more is graded so, or it would blame vendors
// for rules that nobody gave them. A native plugin promised all of plugin-api: every check counts.
#pragma once

#include <span>
#include <string_view>

namespace plexus::conformance {

enum class Grade {
  kBreaksJobs,  // a job goes wrong, under NCCL too
  kWeak,        // a job that goes well does so still; one in trouble ends worse
  kBeyond,      // NCCL asks for no such thing
};

/// "breaks jobs", "weak under faults", "beyond NCCL's contract".
[[nodiscard]] const char* grade_words(Grade grade);
/// "fail", "weak", "beyond": the verdict of a check that failed.
[[nodiscard]] const char* grade_verdict(Grade grade);

/// Of the check `id` over a plugin of NCCL's ABI.
[[nodiscard]] Grade grade_under_nccl(std::string_view id);

/// Every id that has a row of its own; the others break jobs.
struct GradeRow {
  std::string_view id;
  Grade grade;
};
[[nodiscard]] std::span<const GradeRow> grade_rows();

}  // namespace plexus::conformance
