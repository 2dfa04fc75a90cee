// SPDX-License-Identifier: Apache-2.0
// The machine-readable reports.
#include <sstream>

#include <fmt/core.h>
#include <nlohmann/json.hpp>
#include <pugixml.hpp>

#include "core/base/text.hpp"
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

bool counts_as_failure(const Verdict& verdict, bool is_strict) {
  return verdict.outcome == Outcome::kFail && (is_strict || verdict.grade == Grade::kBreaksJobs);
}

void set(pugi::xml_node node, const char* attribute, const std::string& value) {
  node.append_attribute(attribute).set_value(value.c_str());
}

std::string in_seconds(double seconds) { return fmt::format("{:.3f}", seconds); }

void append_case(pugi::xml_node suite, const ReportHead& head, const Verdict& verdict) {
  const std::string_view id = verdict.check->id;
  pugi::xml_node made = suite.append_child("testcase");
  set(made, "classname",
      fmt::format("{}.{}", kind_word(head.identity.kind), id.substr(0, id.find('.'))));
  set(made, "name", std::string(id));
  set(made, "time", in_seconds(verdict.seconds));
  if (verdict.outcome == Outcome::kPass) {
    return;
  }
  const std::string why = printable(verdict.detail);
  if (counts_as_failure(verdict, head.is_strict)) {
    pugi::xml_node failure = made.append_child("failure");
    set(failure, "type", grade_words(verdict.grade));
    set(failure, "message", why);
    failure.text().set(
        fmt::format("{}\nrule: {}", verdict.check->title, verdict.check->rule).c_str());
    return;
  }
  const std::string prefix = verdict.outcome == Outcome::kFail
                                 ? fmt::format("{}: ", grade_words(verdict.grade))
                             : verdict.outcome == Outcome::kKnown ? "known limit: "
                                                                  : "";
  set(made.append_child("skipped"), "message", prefix + why);
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
  pugi::xml_document document;
  pugi::xml_node suite = document.append_child("testsuites").append_child("testsuite");
  size_t failures = 0;
  size_t skipped = 0;
  double seconds_all = 0;
  for (const Verdict& verdict : verdicts) {
    const bool is_failure = counts_as_failure(verdict, head.is_strict);
    failures += is_failure ? 1 : 0;
    skipped += is_failure || verdict.outcome == Outcome::kPass ? 0 : 1;
    seconds_all += verdict.seconds;
    append_case(suite, head, verdict);
  }
  set(suite, "name", printable(fmt::format("{} {}", head.library, head.identity.abi)));
  set(suite, "tests", std::to_string(verdicts.size()));
  set(suite, "failures", std::to_string(failures));
  set(suite, "skipped", std::to_string(skipped));
  set(suite, "errors", "0");
  set(suite, "time", in_seconds(seconds_all));
  std::ostringstream text;
  document.save(text, "  ");
  return text.str();
}

}  // namespace plexus::conformance
