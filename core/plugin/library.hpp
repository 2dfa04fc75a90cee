// SPDX-License-Identifier: Apache-2.0
// A loaded shared library: the only place that opens one (and the only user of Boost.DLL).
// A library is loaded with all its symbols resolved and none of them global, and it is never
// unloaded while the process lives: a plugin may have threads, atexit handlers and thread-local
// destructors in it. Called by core/plugin/registry and core/plugin/net_plugin.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "core/base/result.hpp"

namespace plexus {

/// The name under which the program itself is "loaded": its plugins are linked into it.
inline constexpr const char* kStaticPlugin = "STATIC_PLUGIN";

/// Threads: const members are safe from any thread.
class Library {
 public:
  /// Loads the file at `path`. A path without '/' is a bare name, which the dynamic loader looks
  /// for by its own rules (LD_LIBRARY_PATH, RUNPATH, cache); STATIC_PLUGIN is the program. The
  /// error of a file that is no loadable library says why, with the loader's own words.
  [[nodiscard]] static Result<Library> load(const std::filesystem::path& path);

  /// The function `name`, or null.
  template <class Function>
  [[nodiscard]] Function* find_function(const char* name) const noexcept {
    return reinterpret_cast<Function*>(find_symbol(name));
  }
  /// Whether `name` is defined as a function or an object.
  [[nodiscard]] bool has_symbol(const char* name) const noexcept {
    return find_symbol(name) != nullptr;
  }
  struct Object {
    const void* address = nullptr;
    size_t size_bytes = 0;  // as the library's symbol table says; 0: it does not
  };
  /// The data symbol `name`, with the size that its own compiler gave it.
  [[nodiscard]] std::optional<Object> find_object(const char* name) const noexcept;
  /// The file that was loaded, absolute.
  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }

 private:
  using Address = void (*)();
  Library(void* native, std::filesystem::path path) : native_(native), path_(std::move(path)) {}
  [[nodiscard]] Address find_symbol(const char* name) const noexcept;

  void* native_;  // dlopen's handle, pinned in the process: valid for ever
  std::filesystem::path path_;
};

/// Looks at the headers of an ELF file without loading it: a truncated library would kill the
/// process inside dlopen, one of another machine gives an unclear message. Fails with the reason.
[[nodiscard]] Result<void> check_elf_file(const std::filesystem::path& path);

/// The folder of the library (or program) that contains this code; empty when it cannot be known.
[[nodiscard]] std::filesystem::path find_own_folder();

}  // namespace plexus
