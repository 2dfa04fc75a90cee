// SPDX-License-Identifier: Apache-2.0
#include "tools/conformance/report.hpp"

#include <fmt/core.h>
#include <nlohmann/json.hpp>

namespace plexus::conformance {
namespace {

const char* word(Outcome outcome) {
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

}  // namespace

Counts count(const std::vector<Verdict>& verdicts) {
  Counts counts;
  for (const Verdict& verdict : verdicts) {
    counts.passed += verdict.outcome == Outcome::kPass ? 1 : 0;
    counts.failed += verdict.outcome == Outcome::kFail ? 1 : 0;
    counts.known += verdict.outcome == Outcome::kKnown ? 1 : 0;
    counts.skipped += verdict.outcome == Outcome::kSkip ? 1 : 0;
  }
  return counts;
}

std::string format_verdict(const Verdict& verdict) {
  std::string text = fmt::format("{:<5} {:<32} {}", word(verdict.outcome), verdict.check->id,
                                 verdict.check->title);
  if (verdict.outcome != Outcome::kPass) {
    text += fmt::format("\n      {}", verdict.detail);
  }
  if (verdict.outcome == Outcome::kFail) {
    text += fmt::format("\n      rule: {}", verdict.check->rule);
  }
  return text;
}

std::string format_json(const std::string& library,
                        const Identity& identity,
                        const std::vector<Verdict>& verdicts) {
  using Json = nlohmann::ordered_json;
  Json checks = Json::array();
  for (const Verdict& verdict : verdicts) {
    checks.push_back({{"id", verdict.check->id},
                      {"title", verdict.check->title},
                      {"rule", verdict.check->rule},
                      {"verdict", word(verdict.outcome)},
                      {"detail", verdict.outcome == Outcome::kPass ? "" : verdict.detail},
                      {"seconds", verdict.seconds}});
  }
  const Counts counts = count(verdicts);
  const Json report = {{"library", library},      {"kind", kind_word(identity.kind)},
                       {"abi", identity.abi},     {"name", identity.name},
                       {"checks", checks},        {"passed", counts.passed},
                       {"failed", counts.failed}, {"skipped", counts.skipped},
                       {"known", counts.known}};
  // A plugin's texts may be no UTF-8.
  return report.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace plexus::conformance
