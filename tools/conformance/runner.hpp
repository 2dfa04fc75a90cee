// SPDX-License-Identifier: Apache-2.0
// Runs checks, each in processes of its own with a deadline: what a plugin does there, a crash and
// a hang included, becomes a verdict. The kit's own process never loads the plugin.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tools/conformance/check.hpp"
#include "tools/conformance/grade.hpp"

namespace plexus::conformance {

/// kKnown: it failed, as a list of limits says that it does.
enum class Outcome { kPass, kFail, kSkip, kKnown };

struct Verdict {
  const Check* check;
  Outcome outcome;
  std::string detail;  // why, unless it passed
  double seconds;
  Grade grade = Grade::kBreaksJobs;  // of a failure
};

/// What the library is, as found by loading it in a process of its own.
struct Identity {
  PluginKind kind = PluginKind::kNone;
  std::string abi;      // "plexus 1.1", "ncclNetPlugin_v8"
  std::string name;     // of the plugin
  std::string problem;  // why it is of no kind
  /// Why nothing of it can be checked here, though nothing is known to be wrong: no device, a kind
  /// that the kit does not check, no CUDA. Empty: checks can run.
  std::string unchecked = {};
  std::string log = {};  // the library's own lines that may say why
};
[[nodiscard]] Result<Identity> identify(const Subject& subject);
[[nodiscard]] bool is_native(const Identity& identity);
/// What it means that this library fails `check`.
[[nodiscard]] Grade grade_of(const Check& check, const Identity& identity);

/// Those of `checks` that an item of `only` names: an id, or the begin of some up to a dot. All
/// when `only` is empty. Fails when an item names nothing.
[[nodiscard]] Result<std::vector<const Check*>> select_checks(std::vector<const Check*> checks,
                                                              const std::vector<std::string>& only);

/// Limits that are not the plugin's fault and that its documentation names: id of a check ->
/// reason. A list holds for one environment, such as one provider of a fabric library.
using KnownLimits = std::map<std::string, std::string>;
/// A line per check: its id, then the reason. `#` begins a comment. Fails when a line has no reason
/// or names no check of `all`.
[[nodiscard]] Result<KnownLimits> parse_known_limits(std::string_view text,
                                                     const std::vector<const Check*>& all);
/// Failures that `known` lists become kKnown, the reason before what was seen.
void apply_known_limits(const KnownLimits& known, std::vector<Verdict>& verdicts);

/// `progress` hears of each verdict as it comes; the result has the order of `checks`.
[[nodiscard]] Result<std::vector<Verdict>> run_checks(
    const Subject& subject,
    const Identity& identity,
    const std::vector<const Check*>& checks,
    uint32_t jobs,
    const std::function<void(const Verdict&)>& progress);

/// Runs one function in processes of its own. Its text is what a passing check left on its seat.
[[nodiscard]] Result<Verdict> run_alone(const Subject& subject, const Check& check);

}  // namespace plexus::conformance
