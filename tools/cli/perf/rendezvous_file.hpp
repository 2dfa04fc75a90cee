// SPDX-License-Identifier: Apache-2.0
// Hands the unique id from rank 0 to the other ranks of a job on one host, through a small file
// that only this user can read. Used when a launcher gives neither an address nor anything to send
// it with. The id holds the job's secret, so: mode 0600, made under a private name and renamed when
// complete, and a reader takes it only when it is a plain file of its own user.
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

/// Where the ranks of `job` meet: in `folder`, by a name made of the user and the job.
[[nodiscard]] std::filesystem::path rendezvous_path(const std::filesystem::path& folder,
                                                    const std::string& job);

/// Rank 0: puts the id there. A file that an earlier job left is replaced.
[[nodiscard]] Result<void> publish_unique_id(const std::filesystem::path& path,
                                             const UniqueIdBytes& id);
/// Other ranks: waits for it. Files last written before `oldest` are an earlier job's.
[[nodiscard]] Result<UniqueIdBytes> wait_unique_id(const std::filesystem::path& path,
                                                   std::filesystem::file_time_type oldest,
                                                   std::chrono::milliseconds timeout);

}  // namespace plexus::perf
