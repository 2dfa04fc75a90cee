// SPDX-License-Identifier: Apache-2.0
// What a file is that a user gives, by how it begins, so that a reader which gets one of another
// kind says so in place of a complaint about its first word.
#pragma once

#include <cstdint>
#include <string_view>

#include "core/base/result.hpp"

namespace plexus {

enum class FileKind : uint8_t {
  kTopology,
  kGraphs,
  kProgram,  // of ours or MSCCL's
  kFabricFile,
  kFabricModel,
  kSlurm,
  kSettings,
  kRcclTopology,
  kHwloc,
  kMscclppPlan,
  kWorkload,  // calls of a job, in any of the formats of docs/formats.md
  kUnknown,
};

/// kUnknown: nothing can be said of it, which its reader does in detail.
[[nodiscard]] FileKind find_file_kind(std::string_view text);

/// kInvalidUsage: the text is of another kind that is known, and of which.
[[nodiscard]] Result<void> check_file_kind(std::string_view text, FileKind wanted);

}  // namespace plexus
