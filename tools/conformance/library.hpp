// SPDX-License-Identifier: Apache-2.0
// Loading the library of a check's subject, in the check's own process.
#pragma once

#include <optional>
#include <string>

#include "core/base/result.hpp"
#include "core/plugin/library.hpp"
#include "core/plugin/nccl_table.hpp"
#include "tools/conformance/stand.hpp"

namespace plexus::conformance {

[[nodiscard]] Result<Library> load_library(Stand& stand);
/// Of the error of a load: CUDA's runtime was missing, and what helps. Nullopt: something else.
[[nodiscard]] std::optional<std::string> explain_missing_cuda(const std::string& error);
/// NCCL's table of the version that the subject names, else the newest of `versions`.
[[nodiscard]] Result<NcclTable> load_table(Stand& stand, const char* stem, NcclVersions versions);

}  // namespace plexus::conformance
