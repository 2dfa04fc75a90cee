// SPDX-License-Identifier: Apache-2.0
// Public measurements as rows that public_accuracy fits and scores.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/base/result.hpp"
#include "tools/cli/topo/fitted_times.hpp"

namespace plexus {

using TsvRow = std::map<std::string, std::string>;  // by the header's names

/// Lines that begin with # are left out. An Error: no such file, or a line of another length than
/// the header.
Result<std::vector<TsvRow>> read_tsv(const std::string& path);

/// Machines by label of the data, planned once for each number of GPUs and nodes.
class Machines {
 public:
  static Result<Machines> load(const std::string& path);

  /// Whether tables of that label have a part in the fit.
  [[nodiscard]] bool is_fitted(const std::string& label) const;
  /// nullptr: the label is not described. One node if the line has as many GPUs as there are.
  const FittedMachine* find(const std::string& label, int gpus, int nodes, bool tcp = false);

 private:
  struct Line {
    std::string text;
    bool is_fitted;
  };
  [[nodiscard]] const Line* line_of(const std::string& label) const;

  std::map<std::string, Line> lines_;  // by label
  std::map<std::string, std::unique_ptr<FittedMachine>> planned_;
};

struct Sample {
  std::string table;
  std::string label;  // of the machine: what cross-validation leaves out
  FittedCall call = FittedCall::kAllReduce;
  size_t bytes = 0;
  double time_us = 0;
  Setup setup = Setup::kProcesses;
  bool is_fault = false;
  bool is_fitted = true;  // false: scored only
  std::optional<NcclAlgorithm> forced = {};
  const FittedMachine* machine = nullptr;
  FittedChoice way = {};
  double weight = 1;
};

/// Of nccl-tests and aiconfigurator. `left_out`: labels without a machine, with their rows.
Result<std::vector<Sample>> read_samples(const std::string& folder,
                                         Machines& machines,
                                         std::map<std::string, int>* left_out);

/// XLA's: several groups at once. The label is "GROUPS x GPUS".
Result<std::vector<Sample>> read_groups(const std::string& folder, Machines& machines);

struct LoggedChoice {
  std::string machine;
  FittedCall call;
  size_t bytes;
  std::string logged;     // "RING LL"
  std::string predicted;  // in the same form
};
/// NCCL's own, not forced ones; of ranges the powers of two.
Result<std::vector<LoggedChoice>> read_choices(const std::string& folder, Machines& machines);

}  // namespace plexus
