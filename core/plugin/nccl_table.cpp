// SPDX-License-Identifier: Apache-2.0
#include "core/plugin/nccl_table.hpp"

namespace plexus {

Result<void> NcclTable::check_size(size_t size_bytes) const {
  if (object.size_bytes != 0 && object.size_bytes < size_bytes) {
    return fail(Code::kInvalidUsage,
                "its {} has {} bytes, expected {}: it was not built with NCCL's header; rebuild it",
                symbol, object.size_bytes, size_bytes);
  }
  return ok();
}

std::optional<NcclTable> find_newest_table(const Library& library,
                                           const char* stem,
                                           NcclVersions versions) {
  for (int version = versions.most; version >= versions.least; --version) {
    std::string symbol = fmt::format("{}_v{}", stem, version);
    if (const auto object = library.find_object(symbol.c_str())) {
      return NcclTable{version, std::move(symbol), *object};
    }
  }
  return std::nullopt;
}

}  // namespace plexus
