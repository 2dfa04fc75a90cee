// SPDX-License-Identifier: Apache-2.0
// The calibration file that `plexus tune` writes: JSON, {"links": {"host": {"latency_us": 0.16,
// "message_us": 0.05, "us_per_byte": 5e-05}, ...}, "host": {"reduce_us_per_byte": 8e-06, "turn_us":
// 0.45, "spread": 0.5}}; links by class: process, host, net, far. What is missing keeps its
// default; "about" is for people.
#pragma once

#include <filesystem>

#include "plugins/support/result.hpp"
#include "plugins/tuner-default/cost_model.hpp"

namespace plexus::tuner_default {

/// Fails with what is wrong and where: no JSON, an unknown class or name, a number that is no cost.
plugin::Result<Calibration> read_calibration(const std::filesystem::path& path);

}  // namespace plexus::tuner_default
