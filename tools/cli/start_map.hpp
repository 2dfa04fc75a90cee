// SPDX-License-Identifier: Apache-2.0
// What a job found when it tried its links (PLEXUS_SELFTEST_FILE), for `plexus doctor --start`.
//
//   PLEXUS_TRY(report, read_start_report(text_of_the_file));
//   return report.text;  // a map of the ranks, and what was found
#pragma once

#include <string>
#include <string_view>

#include "core/base/result.hpp"
#include "tools/cli/sim/heat_map.hpp"

namespace plexus {

struct StartReport {
  std::string text;
  HeatMap map;  // the same as a picture: dark is bad
  size_t findings = 0;
};
/// Of the last line of `file`. An Error: it is none of a self-test.
Result<StartReport> read_start_report(std::string_view file);

}  // namespace plexus
