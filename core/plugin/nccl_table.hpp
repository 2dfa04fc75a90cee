// SPDX-License-Identifier: Apache-2.0
// A plugin of NCCL's ABIs exports a table of each version that it serves, a data symbol STEM_vN
// ("ncclNetPlugin_v8"). The host takes the highest that it knows.
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

  /// kInvalidUsage when the library says that its table is smaller than the ABI's.
  [[nodiscard]] Result<void> check_size(size_t size_bytes) const;
};

struct NcclVersions {
  int least;
  int most;
};
/// Of any ABI: more than there are, some to come.
inline constexpr NcclVersions kAnyNcclVersion = {1, 20};

/// The highest of these versions that the library has. Nothing of the library is called.
[[nodiscard]] std::optional<NcclTable> find_newest_table(const Library& library,
                                                         const char* stem,
                                                         NcclVersions versions);

}  // namespace plexus
