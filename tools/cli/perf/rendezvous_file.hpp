// SPDX-License-Identifier: Apache-2.0
// Passes the unique id from rank 0 to the other ranks of a job on one host in a small file that
// only this user can read. Used if a launcher provides neither an address nor a way to send data.
// The id contains the job's secret; therefore mode 0600, a private name until the file is complete,
// and readers only accept a plain file of their own user.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <filesystem>
#include <string>

#include "core/base/result.hpp"

namespace plexus::perf {

inline constexpr size_t kUniqueIdBytes = 128;
using UniqueIdBytes = std::array<std::byte, kUniqueIdBytes>;

/// The path for `job`: in `folder`, with a name made from the user and the job.
[[nodiscard]] std::filesystem::path rendezvous_path(const std::filesystem::path& folder,
                                                    const std::string& job);

/// Rank 0: writes the id. Replaces a file of an earlier job.
[[nodiscard]] Result<void> publish_unique_id(const std::filesystem::path& path,
                                             const UniqueIdBytes& id);
/// Other ranks: waits for the id. Files last written before `oldest` belong to an earlier job.
[[nodiscard]] Result<UniqueIdBytes> wait_unique_id(const std::filesystem::path& path,
                                                   std::filesystem::file_time_type oldest,
                                                   std::chrono::milliseconds timeout);

}  // namespace plexus::perf
