// SPDX-License-Identifier: Apache-2.0
// A client of NCCL's RAS protocol, for jobs of Plexus and of NCCL.
#pragma once

#include <string>

#include "core/base/result.hpp"

namespace plexus {

/// The report of the job whose process answers at `address` ("localhost:28028"). Blocks for at most
/// about 20 s; a process that does not answer a connection is taken for stopped, and another one
/// that shares the port is tried.
Result<std::string> ask_ras(const std::string& address, bool is_json, bool is_verbose);

/// The report in JSON as metrics in Prometheus' text format. An Error: it is none.
Result<std::string> make_ras_metrics(const std::string& report);

}  // namespace plexus
