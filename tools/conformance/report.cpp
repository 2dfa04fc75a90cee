// SPDX-License-Identifier: Apache-2.0
#include "tools/conformance/report.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <map>
#include <string_view>

#include <fmt/core.h>
#include <fmt/ranges.h>

namespace plexus::conformance {
namespace {

constexpr std::array kGrades = {Grade::kBreaksJobs, Grade::kWeak, Grade::kBeyond};

/// Failures with the same cause.
struct Group {
  std::string cause;
  std::vector<const Verdict*> verdicts;
};

/// Failures of `grade`, in order of the first appearance of their causes.
std::vector<Group> group_failures(const std::vector<Verdict>& verdicts, Grade grade) {
  std::vector<Group> groups;
  for (const Verdict& verdict : verdicts) {
    if (verdict.outcome != Outcome::kFail || verdict.grade != grade) {
      continue;
    }
    const std::string cause = find_cause(verdict.detail);
    auto found = std::find_if(groups.begin(), groups.end(),
                              [&](const Group& group) { return group.cause == cause; });
    if (found == groups.end()) {
      found = groups.insert(groups.end(), {cause, {}});
    }
    found->verdicts.push_back(&verdict);
  }
  return groups;
}

std::string format_group(const Group& group) {
  const Verdict& first = *group.verdicts.front();
  std::string text = fmt::format("  {}\n", first.detail);
  if (group.verdicts.size() > 1) {
    text = fmt::format("  {} checks, one cause: {}\n", group.verdicts.size(), first.detail);
  }
  std::string rule;
  for (const Verdict* verdict : group.verdicts) {
    text += fmt::format("    {:<26} {}\n", verdict->check->id, verdict->check->title);
    if (rule != verdict->check->rule) {
      rule = verdict->check->rule;
      text += fmt::format("      rule: {}\n", rule);
    }
  }
  return text;
}

const char* grade_heading(Grade grade) {
  switch (grade) {
    case Grade::kBreaksJobs:
      return "fail: a job fails or gets wrong results";
    case Grade::kWeak:
      return "weak: a failing job ends worse than necessary (counts with --strict)";
    case Grade::kBeyond:
      return "beyond: more than NCCL requires (counts with --strict)";
  }
  return "?";
}

std::vector<const char*> ids_of(const Group& group) {
  std::vector<const char*> ids;
  for (const Verdict* verdict : group.verdicts) {
    ids.push_back(verdict->check->id);
  }
  return ids;
}

/// Escapes text for a table cell.
std::string in_cell(std::string text) {
  for (char& c : text) {
    c = c == '\n' ? ' ' : c == '|' ? '/' : c;
  }
  return text;
}

}  // namespace

const char* word_of(const Verdict& verdict) {
  switch (verdict.outcome) {
    case Outcome::kPass:
      return "pass";
    case Outcome::kFail:
      return grade_verdict(verdict.grade);
    case Outcome::kSkip:
      return "skip";
    case Outcome::kKnown:
      return "known";
  }
  return "?";
}

Counts count(const std::vector<Verdict>& verdicts) {
  Counts counts;
  for (const Verdict& verdict : verdicts) {
    const bool is_fail = verdict.outcome == Outcome::kFail;
    counts.passed += verdict.outcome == Outcome::kPass ? 1 : 0;
    counts.failed += is_fail && verdict.grade == Grade::kBreaksJobs ? 1 : 0;
    counts.weak += is_fail && verdict.grade == Grade::kWeak ? 1 : 0;
    counts.beyond += is_fail && verdict.grade == Grade::kBeyond ? 1 : 0;
    counts.known += verdict.outcome == Outcome::kKnown ? 1 : 0;
    counts.skipped += verdict.outcome == Outcome::kSkip ? 1 : 0;
  }
  return counts;
}

std::string format_counts(const Counts& counts) {
  std::string text =
      fmt::format("{} passed, {} failed, {} skipped", counts.passed, counts.failed, counts.skipped);
  for (const auto& [number, what] :
       {std::pair{counts.weak, "weak under faults"},
        std::pair{counts.beyond, "beyond NCCL's contract"}, std::pair{counts.known, "known"}}) {
    text += number == 0 ? "" : fmt::format(", {} {}", number, what);
  }
  return text;
}

std::string find_cause(const std::string& detail) {
  size_t begin = 0;
  if (const size_t call = detail.find(" failed with code "); call != std::string::npos) {
    const size_t before = detail.rfind(": ", call);
    begin = before == std::string::npos ? 0 : before + 2;
  }
  for (const std::string_view crash :
       {"was killed by SIG", "did not end in time: ", "exited with code ", "timed out after "}) {
    begin =
        std::min(detail.find(crash), detail.size()) < detail.size() ? detail.find(crash) : begin;
  }
  std::string cause;
  for (const char c : std::string_view(detail).substr(begin)) {
    const bool is_digit = std::isdigit(static_cast<unsigned char>(c)) != 0;
    if (!is_digit) {
      cause += c;
    } else if (cause.empty() || cause.back() != '#') {
      cause += '#';
    }
  }
  return cause;
}

std::string format_verdict(const Verdict& verdict) {
  std::string text = fmt::format("{:<6} {:<26} {:>6.2f} s  {}", word_of(verdict), verdict.check->id,
                                 verdict.seconds, verdict.check->title);
  if (verdict.outcome == Outcome::kSkip || verdict.outcome == Outcome::kKnown) {
    text += fmt::format("\n       {}", verdict.detail);
  }
  return text;
}

std::string format_failures(const std::vector<Verdict>& verdicts) {
  std::string text;
  for (const Grade grade : kGrades) {
    const std::vector<Group> groups = group_failures(verdicts, grade);
    if (!groups.empty()) {
      text += fmt::format("\n{}\n", grade_heading(grade));
    }
    for (const Group& group : groups) {
      text += format_group(group);
    }
  }
  return text.empty() ? text : text + "\n";
}

std::string format_summary(const ReportHead& head, const std::vector<Verdict>& verdicts) {
  const Counts counts = count(verdicts);
  std::string text = fmt::format(
      "# {}: {} plugin {} ({})\n\n`plexus plugin check {}`: {} of {} checks passed.\n\n| verdict | "
      "checks | meaning |\n| --- | --- | --- |\n| fail | {} | a job fails or gets wrong results "
      "|\n| weak | {} | a failing job (a peer that died, no descriptors) ends worse than necessary "
      "|\n| beyond | {} | more than NCCL requires |\n| known | {} | a limit below the plugin, "
      "listed by its author |\n| skip | {} | could not be tested here |\n\n",
      head.library.substr(head.library.rfind('/') + 1), kind_word(head.identity.kind),
      head.identity.name, head.identity.abi, head.library, counts.passed, verdicts.size(),
      counts.failed, counts.weak, counts.beyond, counts.known, counts.skipped);
  if (counts.failed + counts.weak + counts.beyond == 0) {
    return text + "Nothing failed.\n";
  }
  text += "| verdict | cause | checks |\n| --- | --- | --- |\n";
  for (const Grade grade : kGrades) {
    for (const Group& group : group_failures(verdicts, grade)) {
      text += fmt::format("| {} | {} | {} |\n", grade_verdict(grade),
                          in_cell(group.verdicts.front()->detail), fmt::join(ids_of(group), ", "));
    }
  }
  return text;
}

}  // namespace plexus::conformance
