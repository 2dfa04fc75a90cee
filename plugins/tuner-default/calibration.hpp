// SPDX-License-Identifier: Apache-2.0
// The calibration file that `plexus tune` writes: JSON, {"links": {"host": {"latency_us": 0.16,
// "message_us": 0.05, "us_per_byte": 5e-05}, ...}, "host": {"reduce_us_per_byte": 8e-06, "turn_us":
// 0.45, "spread": 0.5}, "measured": [{"link": "host", "ranks": 2, "collective": "all_reduce",
// "bytes": [64, 256], "time_us": {"ring": [0.2, 0.3], ...}}, ...]}; links by class: process, host,
// net, xdc; "nccl": [{"ranks": 16, "nodes": 2, "collective": "all_reduce", "bytes": [64, 256],
// "time_us": {"ring/LL": [20, 30], ...}}, ...]. What is missing keeps its default; "about" is for
// people, "messages" for the simulator (tools/sim/work.hpp).
#pragma once

#include <filesystem>
#include <string_view>
#include <vector>

#include "plugins/support/result.hpp"
#include "plugins/tuner-default/cost_model.hpp"
#include "plugins/tuner-default/measured.hpp"
#include "plugins/tuner-default/nccl_times.hpp"

namespace plexus::tuner_default {

struct CalibrationFile {
  Calibration model;
  std::vector<MeasuredCall> measured;
  std::vector<NcclTimes> nccl;  // for the tuners in stock NCCL
};

/// An Error says what is wrong: no JSON, an unknown class or name, a number that cannot be a cost.
plugin::Result<CalibrationFile> parse_calibration(std::string_view text);
/// The same for a file.
plugin::Result<CalibrationFile> read_calibration(const std::filesystem::path& path);

}  // namespace plexus::tuner_default
