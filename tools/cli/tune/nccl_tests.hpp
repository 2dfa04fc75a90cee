// SPDX-License-Identifier: Apache-2.0
// Logs of nccl-tests as measured times for the tuners in stock NCCL (PLEXUS_TUNE_FILE, "nccl"):
// each log is of one algorithm and protocol, which the user has forced with NCCL_ALGO and
// NCCL_PROTO and names, since the log does not say them:
//
//   PLEXUS_TRY(log, parse_nccl_tests(text));
//   PLEXUS_TRY(merge_log(calls, "ring/LL128", log));
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "core/base/result.hpp"

namespace plexus::tune {

struct NcclTestsLog {
  std::string collective;  // "all_reduce"
  uint32_t nranks = 0;
  uint32_t nnodes = 0;  // hosts that ranks are on
  std::vector<double> bytes = {};
  std::vector<double> time_us = {};  // out of place
};

/// Times of one collective on as many ranks and nodes, by algorithm and protocol.
struct NcclTestsCall {
  std::string collective;
  uint32_t nranks = 0;
  uint32_t nnodes = 0;
  std::vector<double> bytes = {};
  std::map<std::string, std::vector<double>> time_us = {};
};

/// An Error says which part is missing, or which line cannot be read: no rank, no table, sizes that
/// do not ascend, ranks in several groups.
Result<NcclTestsLog> parse_nccl_tests(std::string_view text);

/// Adds the times of `pair`, as in "ring/LL128". An Error: it is there already, or the sizes are
/// not those of the call's other logs.
Result<void> merge_log(std::vector<NcclTestsCall>& calls,
                       const std::string& pair,
                       const NcclTestsLog& log);

/// A calibration file.
std::string format_nccl_times(const std::vector<NcclTestsCall>& calls, const std::string& about);

}  // namespace plexus::tune
