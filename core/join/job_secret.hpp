// SPDX-License-Identifier: Apache-2.0
// A secret that the user gives to all processes of a job, by a file (PLEXUS_SECRET_FILE) or a call
// (ncclSetEncryption). Where unique ids are derived from what others may know (torchrun, srun
// without PMI, NCCL_COMM_ID) it is the only one; to others it is added.
#pragma once

#include <string>
#include <string_view>

#include "core/base/result.hpp"
#include "core/control/unique_id.hpp"

namespace plexus {

inline constexpr size_t kJobSecretBytesMin = 32;

/// The text of the file without blanks at its end. kInvalidArgument: it cannot be read, others than
/// its owner may use it, or it is too short or too long.
Result<std::string> read_job_secret(const std::string& path);

/// `id` with the secret that its connections prove; `job_secret` empty: its own.
UniqueId with_job_secret(const UniqueId& id, std::string_view job_secret);

}  // namespace plexus
