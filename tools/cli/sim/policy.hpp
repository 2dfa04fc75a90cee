// SPDX-License-Identifier: Apache-2.0
// Policies of tuners in the simulator: what each would choose for a call, how long that takes, and
// how much longer than the best.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/plugin/tuner_plugin.hpp"
#include "tools/cli/sim/call.hpp"

namespace plexus {

/// What a policy chose for a call; of one that learns, in the end.
struct PolicyRow {
  /// Calls that were made to learn, before `chosen`.
  struct Trial {
    uint32_t calls;
    double time_us;  // of each
  };
  std::string policy;
  SimRow chosen;
  std::vector<Trial> trials = {};

  /// Of the first `calls` calls.
  [[nodiscard]] double time_us(uint64_t calls) const;
};

/// A size, with the best algorithm of all that were simulated.
struct PolicySize {
  std::vector<PolicyRow> rows;  // by policy
  SimRow best;

  /// Time of the choice by that of the best, minus 1; never negative.
  [[nodiscard]] double regret(const PolicyRow& row) const;
};

class Policies {
 public:
  /// Opens each of `options.tuners` for the cluster: as NCCL_TUNER_PLUGIN takes them, `default` is
  /// Plexus's own. The options and the fabric (nullptr: none) are borrowed.
  static Result<Policies> open(const SimOptions& options, const Fabric* fabric);

  /// All choices for a call, and the best of all algorithms with the default channels.
  Result<PolicySize> compare(Collective collective, uint64_t bytes) const;

 private:
  struct Policy {
    std::string name;
    std::unique_ptr<Tuner> tuner;  // nullptr: the built-in rules
  };
  Policies(const SimOptions& options, const Fabric* fabric) : options_(options), fabric_(fabric) {}
  Result<PolicyRow> simulate_policy(const Policy& policy,
                                    const SimOptions& call,
                                    uint64_t bytes) const;

  const SimOptions& options_;
  const Fabric* fabric_;
  std::vector<Policy> policies_;
  std::unique_ptr<LoopCosts> costs_;
};

}  // namespace plexus
