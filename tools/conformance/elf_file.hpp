// SPDX-License-Identifier: Apache-2.0
// The symbols and dependencies of a shared library, read from its file without running it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "core/base/result.hpp"

namespace plexus::conformance {

struct ElfSymbol {
  std::string name;
  uint64_t size_bytes;
  bool is_function;
};

struct ElfFile {
  std::vector<ElfSymbol> exported;     // defined and dynamic, without those of linkers
  std::vector<std::string> undefined;  // not weak
  std::vector<std::string> needed;     // DT_NEEDED
  std::vector<std::string> run_paths;  // entries of DT_RUNPATH or DT_RPATH
  bool has_text_relocations = false;
  bool has_executable_stack = false;
  bool is_writable_and_executable = false;  // a segment is both
};

/// Whether hosts look for this name in a plugin: plexus_plugin_query, ncclNetPlugin_v8. Similar
/// names of helpers, such as ncclNetConnect_v8, are not entries.
[[nodiscard]] bool is_plugin_entry(const std::string& name);

/// Requires a complete 64-bit library (core/plugin/library check_elf_file).
[[nodiscard]] Result<ElfFile> read_elf_file(const std::filesystem::path& path);

}  // namespace plexus::conformance
