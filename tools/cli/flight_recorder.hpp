// SPDX-License-Identifier: Apache-2.0
// The last calls of a job's ranks as files of PyTorch's flight recorder, a pickle for each rank
// (TORCH_NCCL_DEBUG_INFO_TEMP_FILE), which PyTorch's analyser compares:
//
//   plexus doctor 8971 --flight-recorder /shared/job_   # on each host of the job
//   torchfrtrace --prefix job_ /shared                # of PyTorch 2.9 and later
#pragma once

#include <map>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "core/base/result.hpp"

namespace plexus {

/// By rank of the largest communicator, which is the job: the record of each rank of the processes
/// whose answers (StatusServer) these are. Communicators with ranks that are not in the largest one
/// are left out. An Error: there is none, or an answer makes no sense.
Result<std::map<int, nlohmann::json>> make_flight_records(
    const std::vector<nlohmann::json>& answers);

/// As a pickle of Python, protocol 2. Without numbers that are not whole.
std::string format_pickle(const nlohmann::json& value);

}  // namespace plexus
