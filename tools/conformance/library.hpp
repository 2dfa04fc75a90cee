// SPDX-License-Identifier: Apache-2.0
// Loading the library of a check's subject, in the check's own process.
#pragma once

#include <optional>
#include <string>

#include "core/base/result.hpp"
#include "core/plugin/library.hpp"
#include "core/plugin/nccl_table.hpp"
#include "tools/conformance/fixture.hpp"

namespace plexus::conformance {

[[nodiscard]] Result<Library> load_library(Fixture& fixture);
/// For the error of a load: explains a missing CUDA runtime and what helps. nullopt: another cause.
[[nodiscard]] std::optional<std::string> explain_missing_cuda(const std::string& error);
/// NCCL's table in the version that the subject names, or else the newest of `versions`.
[[nodiscard]] Result<NcclTable> load_table(Fixture& fixture,
                                           const char* stem,
                                           NcclVersions versions);

}  // namespace plexus::conformance
