// SPDX-License-Identifier: Apache-2.0
// Where a plugin library may be, by NCCL's naming rules, and what to tell when it cannot be loaded.
// Profilers and env plugins are found here; networks have rules of their own beside (registry).
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
  std::string setting;  // "NCCL_PROFILER_PLUGIN", for messages
  std::string name;     // a name, a file name, a path, or STATIC_PLUGIN
  std::string folders;  // PLEXUS_PLUGIN_PATH, separated by ':'
  std::filesystem::path own_folder;
};

/// The library, or one sentence: what was looked for and where, or why the file is no good.
[[nodiscard]] Result<Library> find_library(const LibrarySearch& search);

/// Is `error` the loader's "no such file" for `file` itself, not for something that it needs?
[[nodiscard]] bool is_absent(const Error& error, std::string_view file);
/// What the user can do about a library that the dynamic loader refuses; "": nothing is known.
[[nodiscard]] std::string_view remedy_of(std::string_view reason);

/// The parts of a list, empty ones left out.
[[nodiscard]] std::vector<std::string_view> split_list(std::string_view text, char separator);

}  // namespace plexus
