// SPDX-License-Identifier: Apache-2.0
// Search for a plugin library by NCCL's naming rules, and the error when it cannot be loaded. Used
// for profilers and env plugins; networks have their own rules (registry).
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.hpp"
#include "core/plugin/library.hpp"

namespace plexus {

struct LibrarySearch {
  std::string kind;     // "profiler": for libnccl-profiler-NAME.so
  std::string setting;  // "NCCL_PROFILER_PLUGIN", for error messages
  std::string name;     // a name, a file name, a path, or STATIC_PLUGIN
  std::string folders;  // PLEXUS_PLUGIN_PATH, separated by ':'
  std::filesystem::path own_folder;
};

/// The library. An Error says what was looked for and where, or why a file is unusable.
[[nodiscard]] Result<Library> find_library(const LibrarySearch& search);

/// The folders with plugins, in the order of the search: `own_folder` (beside libplexus.so: build
/// trees), its subfolder `plexus` (installed plugins), then those of `folders`, separated by ':'.
[[nodiscard]] std::vector<std::filesystem::path> list_plugin_folders(
    const std::filesystem::path& own_folder, std::string_view folders);

/// Whether `error` is the loader's "no such file" for `file` itself, not for one of its
/// dependencies.
[[nodiscard]] bool is_absent(const Error& error, std::string_view file);
/// What the user can do when the dynamic loader refuses a library for `reason`; "": not known.
[[nodiscard]] std::string_view remedy_of(std::string_view reason);

}  // namespace plexus
