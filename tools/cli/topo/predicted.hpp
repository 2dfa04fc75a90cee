// SPDX-License-Identifier: Apache-2.0
// Predicted times as a table, as JSON and as a picture, beside measured ones if there are any.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "core/base/result.hpp"
#include "tools/cli/sim/plot.hpp"
#include "tools/cli/topo/fitted_times.hpp"

namespace plexus {

struct PredictedCall {
  FittedCall call;
  std::vector<std::pair<size_t, double>> measured = {};  // bytes and us
};

struct PredictedTable {
  const FittedMachine& machine;
  Setup setup = Setup::kProcesses;
  std::vector<size_t> sizes = {};  // of calls without measured times
  std::vector<PredictedCall> calls = {};
};

std::string format_predicted(const PredictedTable& table);
std::string format_predicted_json(const PredictedTable& table);
/// A line of predictions for each call, and measured times as points.
Plot plot_predicted(const PredictedTable& table, const std::string& title);

}  // namespace plexus
