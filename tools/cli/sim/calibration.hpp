// SPDX-License-Identifier: Apache-2.0
// What messages cost, from a file of `plexus tune`: its "messages" (tools/cli/tune/messages.hpp
// writes them).
#pragma once

#include <string_view>

#include "core/base/result.hpp"
#include "tools/sim/work.hpp"

namespace plexus {

/// An Error says what is wrong: no JSON, nothing measured, a number that cannot be a cost.
Result<SimCalibration> parse_sim_calibration(std::string_view text);

}  // namespace plexus
