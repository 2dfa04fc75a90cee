// SPDX-License-Identifier: Apache-2.0
#include "core/plugin/library_search.hpp"

#include <system_error>

#include <fmt/ranges.h>

#include "core/base/text.hpp"

namespace plexus {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> file_names(const LibrarySearch& search) {
  std::vector<std::string> files = {search.name};
  const bool is_file = search.name.find(".so") != std::string::npos;
  if (!is_file && search.name != kStaticPlugin) {
    files = {fmt::format("libnccl-{}-{}.so", search.kind, search.name),
             fmt::format("librccl-{}-{}.so", search.kind, search.name), search.name};
  }
  return files;
}

Error unusable(const LibrarySearch& search, const fs::path& file, const Error& reason) {
  return fail(Code::kInvalidUsage, "{} plugin '{}' ({}) cannot be used: {}{}", search.kind,
              search.name, file.string(), reason.message(), remedy_of(reason.message()));
}

}  // namespace

std::string_view remedy_of(std::string_view reason) {
  if (reason.find("cannot open shared object file") != std::string_view::npos) {
    return "; install that library, or name its folder in LD_LIBRARY_PATH";
  }
  if (reason.find("undefined symbol") != std::string_view::npos ||
      reason.find("version `") != std::string_view::npos) {
    return "; it was built for another version of a library that it needs: install that version, "
           "or rebuild it";
  }
  return "";
}

bool is_absent(const Error& error, std::string_view file) {
  return error.message().starts_with(fmt::format("{}: cannot open shared object file", file));
}

std::vector<fs::path> list_plugin_folders(const fs::path& own_folder, std::string_view folders) {
  std::vector<fs::path> list;
  if (!own_folder.empty()) {
    list.push_back(own_folder);
    list.push_back(own_folder / "plexus");
  }
  for (const std::string_view folder : split_list(folders, ':')) {
    list.emplace_back(folder);
  }
  return list;
}

Result<Library> find_library(const LibrarySearch& search) {
  const std::vector<std::string> files = file_names(search);
  const bool is_path = search.name.find('/') != std::string::npos;
  std::vector<std::string> places;
  if (!is_path) {
    for (const fs::path& folder : list_plugin_folders(search.own_folder, search.folders)) {
      places.push_back(folder.string());
    }
  }
  for (const std::string& folder : places) {
    for (const std::string& file : files) {
      std::error_code ignored;
      if (!folder.empty() && is_library_at(fs::path(folder) / file)) {
        auto library = Library::load(fs::absolute(fs::path(folder) / file, ignored));
        return library.has_value() ? std::move(library)
                                   : Result<Library>(unusable(search, file, library.error()));
      }
    }
  }
  for (const std::string& file : files) {
    auto library = Library::load(file);
    if (library.has_value()) {
      return library;
    }
    if (is_path || !is_absent(library.error(), file)) {
      return unusable(search, file, library.error());
    }
  }
  places.emplace_back("the dynamic loader's paths (LD_LIBRARY_PATH)");
  return fail(
      Code::kInvalidUsage,
      "{} plugin '{}' was not found: looked for {} in {}; put the file there, or correct {}",
      search.kind, search.name, fmt::join(files, ", "), fmt::join(places, ", "), search.setting);
}

}  // namespace plexus
