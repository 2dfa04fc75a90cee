// SPDX-License-Identifier: Apache-2.0
// Runs checks, each in processes of its own with a deadline: whatever the plugin does there,
// including a crash or a hang, becomes a verdict. The kit's own process never loads the plugin.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tools/conformance/check.hpp"
#include "tools/conformance/grade.hpp"

namespace plexus::conformance {

/// kKnown: a failure that a list of known limits contains.
enum class Outcome { kPass, kFail, kSkip, kKnown };

struct Verdict {
  const Check* check;
  Outcome outcome;
  std::string detail;  // why, unless it passed
  double seconds;
  Grade grade = Grade::kBreaksJobs;  // severity if it failed
};

/// The kind of a library, determined by loading it in a separate process.
struct Identity {
  PluginKind kind = PluginKind::kNone;
  std::string abi;      // "plexus 1.1", "ncclNetPlugin_v8"
  std::string name;     // the plugin's
  std::string problem;  // why it has no kind
  /// Why nothing can be checked here without any known error: no device, a kind that the kit does
  /// not check, no CUDA. Empty: checks can run.
  std::string unchecked = {};
  std::string log = {};  // the library's own lines, which may explain it
};
[[nodiscard]] Result<Identity> identify(const Subject& subject);
[[nodiscard]] bool is_native(const Identity& identity);
/// The grade of this library's failure of `check`.
[[nodiscard]] Grade grade_of(const Check& check, const Identity& identity);

/// Whether one of `items` is the check's id or a prefix of it up to a dot.
[[nodiscard]] bool is_named(const Check& check, const std::vector<std::string>& items);
/// The checks that `only` selects by id or by a prefix up to a dot; all if `only` is empty. Fails
/// when an item matches nothing.
[[nodiscard]] Result<std::vector<const Check*>> select_checks(std::vector<const Check*> checks,
                                                              const std::vector<std::string>& only);

/// Failures that are documented and not caused by the plugin: check id -> reason. A list is valid
/// for one environment, such as one provider of a fabric library.
using KnownLimits = std::map<std::string, std::string>;
/// One line per check: its id, then the reason. `#` begins a comment. Fails when a line has no
/// reason or names no check of `all`.
[[nodiscard]] Result<KnownLimits> parse_known_limits(std::string_view text,
                                                     const std::vector<const Check*>& all);
/// A failure listed in `known` becomes kKnown, with the reason before the observation.
void apply_known_limits(const KnownLimits& known, Verdict& verdict);

/// The time-outs of a run. Checks of one group (the first word of their ids) that wait for what
/// never comes take as long each as all others together: after the third identical time-out the
/// rest of the group is not run, except checks of a graver grade than the time-outs.
class TimeOuts {
 public:
  void add(const Verdict& verdict);
  /// Why a check is not run; nullopt: it is.
  [[nodiscard]] std::optional<std::string> find(const Check& check, Grade grade) const;

 private:
  struct Seen {
    std::string group;
    Grade grade;
    std::string cause;
    std::string detail;
  };
  std::vector<Seen> seen_;
};

struct RunOptions {
  uint32_t jobs = 2;
  KnownLimits known = {};
};
/// `progress` is called for each verdict as soon as it is known; the result has the order of
/// `checks`.
[[nodiscard]] Result<std::vector<Verdict>> run_checks(
    const Subject& subject,
    const Identity& identity,
    const std::vector<const Check*>& checks,
    const RunOptions& options,
    const std::function<void(const Verdict&)>& progress);

/// Runs one function in separate processes. The verdict's text is what a passing check left on its
/// status.
[[nodiscard]] Result<Verdict> run_alone(const Subject& subject, const Check& check);

}  // namespace plexus::conformance
