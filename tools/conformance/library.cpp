// SPDX-License-Identifier: Apache-2.0
#include "tools/conformance/library.hpp"

#include <algorithm>

namespace plexus::conformance {

Result<Library> load_library(Stand& stand) {
  stand.seat().place = Place::kLoading;
  auto library = Library::load(stand.file());
  stand.seat().place = Place::kKit;
  if (library.has_error()) {
    return wrong("it cannot be loaded: {}", library.error().message());
  }
  return library;
}

Result<NcclTable> load_table(Stand& stand, const char* stem, NcclVersions versions) {
  PLEXUS_TRY(library, load_library(stand));
  const int named = stand.subject().nccl_version();
  const NcclVersions wanted = {std::max(named, versions.least),
                               named == 0 ? versions.most : std::min(named, versions.most)};
  auto table = find_newest_table(library, stem, wanted);
  if (!table.has_value()) {
    return named == 0 ? wrong("it has none of {}_v{} to v{}", stem, versions.least, versions.most)
                      : wrong("it has no {}_v{}", stem, named);
  }
  return *std::move(table);
}

}  // namespace plexus::conformance
