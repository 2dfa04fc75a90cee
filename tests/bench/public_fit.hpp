// SPDX-License-Identifier: Apache-2.0
// Costs that make the predicted times of samples agree with the measured ones.
#pragma once

#include <string>
#include <vector>

#include "tests/bench/public_data.hpp"

namespace plexus {

/// Gives each machine, collective and band of sizes the same weight but for a square root.
void weigh(std::vector<Sample>& samples);

/// Minimises the sum of |log(predicted / measured)|, each at most 0.5, so that tables which
/// contradict all others have no pull; and a penalty for leaving the mean of the generations
/// of GPUs. What no sample needs is that mean.
FittedCosts fit(const std::vector<Sample>& samples);

double predict(const FittedCosts& costs, const Sample& sample);

/// As the table in fitted_times.cpp.
std::string format_costs(const FittedCosts& costs);

}  // namespace plexus
