// SPDX-License-Identifier: Apache-2.0
// The severity of a failed check. NCCL's contract is what NCCL does, and what its own transports
// support under it; checks that require more are graded lower, because vendors never agreed to
// those rules. A native plugin promises all of plugin-api, so every check counts.
#pragma once

#include <span>
#include <string_view>

namespace plexus::conformance {

enum class Grade {
  kBreaksJobs,  // jobs fail, under NCCL as well
  kWeak,        // healthy jobs still succeed; jobs with failures end worse
  kBeyond,      // NCCL does not require it
};

/// "breaks jobs", "weak under faults", "beyond NCCL's contract".
[[nodiscard]] const char* grade_words(Grade grade);
/// "fail", "weak", "beyond": the verdict of a check that failed.
[[nodiscard]] const char* grade_verdict(Grade grade);

/// For the check `id` of a plugin of NCCL's ABI.
[[nodiscard]] Grade grade_under_nccl(std::string_view id);

/// All ids with their own grade; the others have kBreaksJobs.
struct GradeRow {
  std::string_view id;
  Grade grade;
};
[[nodiscard]] std::span<const GradeRow> grade_rows();

}  // namespace plexus::conformance
