// SPDX-License-Identifier: Apache-2.0
// The machine-readable reports.
#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "tools/conformance/report.hpp"

namespace plexus::conformance {
namespace {

const char* json_word(Outcome outcome) {
  switch (outcome) {
    case Outcome::kPass:
      return "pass";
    case Outcome::kFail:
      return "fail";
    case Outcome::kSkip:
      return "skip";
    case Outcome::kKnown:
      return "known";
  }
  return "?";
}

/// Escapes an attribute or text. Characters that XML does not allow (a plugin's texts may contain
/// any) become question marks.
std::string in_xml(std::string_view text) {
  constexpr unsigned char kAsciiEnd = 0x7F;
  std::string escaped;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    switch (c) {
      case '<':
        escaped += "&lt;";
        break;
      case '>':
        escaped += "&gt;";
        break;
      case '&':
        escaped += "&amp;";
        break;
      case '"':
        escaped += "&quot;";
        break;
      default:
        escaped += byte >= kAsciiEnd || (byte < ' ' && c != '\n' && c != '\t') ? '?' : c;
    }
  }
  return escaped;
}

bool counts_as_failure(const Verdict& verdict, bool is_strict) {
  return verdict.outcome == Outcome::kFail && (is_strict || verdict.grade == Grade::kBreaksJobs);
}

std::string format_case(const ReportHead& head, const Verdict& verdict) {
  const std::string_view id = verdict.check->id;
  std::string text =
      fmt::format("    <testcase classname=\"{}.{}\" name=\"{}\" time=\"{:.3f}\"",
                  kind_word(head.identity.kind), id.substr(0, id.find('.')), id, verdict.seconds);
  if (verdict.outcome == Outcome::kPass) {
    return text + "/>\n";
  }
  const std::string why = in_xml(verdict.detail);
  if (counts_as_failure(verdict, head.is_strict)) {
    return text + fmt::format(
                      ">\n      <failure type=\"{}\" message=\"{}\">{}\nrule: {}</failure>\n"
                      "    </testcase>\n",
                      in_xml(grade_words(verdict.grade)), why, in_xml(verdict.check->title),
                      in_xml(verdict.check->rule));
  }
  const std::string prefix = verdict.outcome == Outcome::kFail
                                 ? in_xml(grade_words(verdict.grade)) + ": "
                             : verdict.outcome == Outcome::kKnown ? "known limit: "
                                                                  : "";
  return text + fmt::format(">\n      <skipped message=\"{}{}\"/>\n    </testcase>\n", prefix, why);
}

}  // namespace

std::string format_json(const ReportHead& head, const std::vector<Verdict>& verdicts) {
  using Json = nlohmann::ordered_json;
  Json checks = Json::array();
  for (const Verdict& verdict : verdicts) {
    checks.push_back({{"id", verdict.check->id},
                      {"title", verdict.check->title},
                      {"rule", verdict.check->rule},
                      {"verdict", json_word(verdict.outcome)},
                      {"grade", grade_words(verdict.grade)},
                      {"detail", verdict.outcome == Outcome::kPass ? "" : verdict.detail},
                      {"seconds", verdict.seconds}});
  }
  const Counts counts = count(verdicts);
  const std::string& problem =
      head.identity.problem.empty() ? head.identity.unchecked : head.identity.problem;
  const Json report = {{"library", head.library},  {"kind", kind_word(head.identity.kind)},
                       {"abi", head.identity.abi}, {"name", head.identity.name},
                       {"checks", checks},         {"passed", counts.passed},
                       {"failed", counts.failed},  {"weak", counts.weak},
                       {"beyond", counts.beyond},  {"skipped", counts.skipped},
                       {"known", counts.known},    {"problem", problem}};
  // A plugin's texts may be invalid UTF-8.
  return report.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string format_junit(const ReportHead& head, const std::vector<Verdict>& verdicts) {
  size_t failures = 0;
  size_t skipped = 0;
  double seconds_all = 0;
  std::string cases;
  for (const Verdict& verdict : verdicts) {
    const bool is_failure = counts_as_failure(verdict, head.is_strict);
    failures += is_failure ? 1 : 0;
    skipped += is_failure || verdict.outcome == Outcome::kPass ? 0 : 1;
    seconds_all += verdict.seconds;
    cases += format_case(head, verdict);
  }
  return fmt::format(
      "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n"
      "  <testsuite name=\"{} {}\" tests=\"{}\" failures=\"{}\" skipped=\"{}\" errors=\"0\" "
      "time=\"{:.3f}\">\n{}  </testsuite>\n</testsuites>\n",
      in_xml(head.library), in_xml(head.identity.abi), verdicts.size(), failures, skipped,
      seconds_all, cases);
}

}  // namespace plexus::conformance
