// SPDX-License-Identifier: Apache-2.0
#include "tools/conformance/library.hpp"

#include <algorithm>
#include <regex>

namespace plexus::conformance {

std::optional<std::string> explain_missing_cuda(const std::string& error) {
  static const std::regex kSymbol("undefined symbol: (cuda[A-Za-z0-9_]+)");
  static const std::regex kFile("(libcudart[A-Za-z0-9_.]*): cannot open");
  std::smatch found;
  if (std::regex_search(error, found, kSymbol)) {
    return fmt::format(
        "it needs {}, a symbol of CUDA's runtime, which it expects its host to have loaded: run "
        "with LD_PRELOAD=libcudart.so of your CUDA, or with --with-cudart-stub, whose functions "
        "all report that there is no GPU",
        found.str(1));
  }
  if (std::regex_search(error, found, kFile)) {
    return fmt::format(
        "it is linked with {}, CUDA's runtime, which is not found: add its folder to "
        "LD_LIBRARY_PATH, or run with --with-cudart-stub, whose functions all report that there is "
        "no GPU",
        found.str(1));
  }
  return std::nullopt;
}

Result<Library> load_library(Fixture& fixture) {
  fixture.status().place = Place::kLoading;
  auto library = Library::load(fixture.file());
  fixture.status().place = Place::kKit;
  if (library.has_error()) {
    return wrong("it cannot be loaded: {}", library.error().message());
  }
  return library;
}

Result<NcclTable> load_table(Fixture& fixture, const char* stem, NcclVersions versions) {
  PLEXUS_TRY(library, load_library(fixture));
  const int named = fixture.subject().nccl_version();
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
