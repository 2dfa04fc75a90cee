// SPDX-License-Identifier: Apache-2.0
// What a shared library shows and needs, read from its file: nothing of it is run.
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
  std::vector<ElfSymbol> exported;     // defined, dynamic, not of a linker
  std::vector<std::string> undefined;  // not weak
  std::vector<std::string> needed;     // DT_NEEDED
  std::vector<std::string> run_paths;  // entries of DT_RUNPATH or DT_RPATH
  bool has_text_relocations = false;
  bool has_executable_stack = false;
  bool is_writable_and_executable = false;  // a segment is both
};

/// A name that hosts look for in a plugin: plexus_plugin_query, ncclNetPlugin_v8. A helper of the
/// plugin's may be called ncclNetConnect_v8, and is none.
[[nodiscard]] bool is_plugin_entry(const std::string& name);

/// The file is known to be a complete 64-bit library (core/plugin/library check_elf_file).
[[nodiscard]] Result<ElfFile> read_elf_file(const std::filesystem::path& path);

}  // namespace plexus::conformance
