// SPDX-License-Identifier: Apache-2.0
// The run behind a certificate: the kit on every table of a library that it has checks for, and,
// if asked for, the long run of each network. What is not tested is said, with the reason.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tools/conformance/endure.hpp"
#include "tools/conformance/runner.hpp"

namespace plexus::conformance {

/// A table that the library exports.
struct Section {
  std::string entry;  // "ncclNetPlugin_v12"
  std::string kind;   // "net"; also of kinds without checks: "env"
  Identity identity;
  std::string untested;  // why nothing was checked; "": `verdicts` has all checks
  std::vector<Verdict> verdicts;
  std::map<std::string, std::string> programs = {};  // check id -> a C program that repeats it
  std::optional<Endurance> endurance = {};
};

struct CertifyOptions {
  RunOptions run;
  std::vector<std::string> only;  // as in select_checks, of all kinds; empty: the whole kit
  seconds endurance{0};
  uint64_t seed = 0;  // of the long run
  std::function<void(const Section&)> begins;
  std::function<void(const Verdict&)> progress;
};

/// Fails when the library exports no plugin.
[[nodiscard]] Result<std::vector<Section>> certify(const Subject& subject,
                                                   const CertifyOptions& options);

/// All checks of all kinds.
[[nodiscard]] std::vector<const Check*> all_checks();

}  // namespace plexus::conformance
