// SPDX-License-Identifier: Apache-2.0
// A plugin of NCCL's ABIs exports one table per version that it supports, as a data symbol STEM_vN
// ("ncclNetPlugin_v8"). The host uses the highest version that it supports itself.
#pragma once

#include <optional>
#include <string>

#include "core/base/result.hpp"
#include "core/plugin/library.hpp"

namespace plexus {

struct NcclTable {
  int version;
  std::string symbol;  // "ncclNetPlugin_v8"
  Library::Object object;

  /// kInvalidUsage when the library's table is smaller than the ABI's.
  [[nodiscard]] Result<void> check_size(size_t size_bytes) const;
};

struct NcclVersions {
  int least;
  int most;
};
/// Versions of any of NCCL's ABIs, including some future ones.
inline constexpr NcclVersions kAnyNcclVersion = {1, 20};

/// The highest of these versions in the library. Calls no function of the library.
[[nodiscard]] std::optional<NcclTable> find_newest_table(const Library& library,
                                                         const char* stem,
                                                         NcclVersions versions);

}  // namespace plexus
