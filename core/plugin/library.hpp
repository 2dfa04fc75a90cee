// SPDX-License-Identifier: Apache-2.0
// A loaded shared library. Only this file opens libraries (and uses Boost.DLL). All symbols of a
// library are resolved when it is loaded, and none becomes global. A library is never unloaded,
// because a plugin may have threads, atexit handlers and thread-local destructors in it.
//
//   PLEXUS_TRY(library, Library::load("/usr/lib/libmine.so"));
//   auto* const answer = library.find_function<int()>("answer");
//   return answer != nullptr && library.has_symbol("version");
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "core/base/result.hpp"

namespace plexus {

/// Path that means the program itself: the plugin is linked into it.
inline constexpr const char* kStaticPlugin = "STATIC_PLUGIN";

/// Threads: const members are safe from any thread.
class Library {
 public:
  /// Loads the file at `path`. A path without '/' is a bare name that the dynamic loader looks up
  /// (LD_LIBRARY_PATH, RUNPATH, cache); STATIC_PLUGIN is the program. The Error for a file that is
  /// no loadable library contains the loader's message.
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
    size_t size_bytes = 0;  // from the library's symbol table; 0: not recorded
  };
  /// The data symbol `name`, with its size as compiled into the library.
  [[nodiscard]] std::optional<Object> find_object(const char* name) const noexcept;
  /// The file that was loaded, absolute.
  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }

 private:
  using Address = void (*)();
  Library(void* native, std::filesystem::path path) : native_(native), path_(std::move(path)) {}
  [[nodiscard]] Address find_symbol(const char* name) const noexcept;

  void* native_;  // dlopen's handle; never closed
  std::filesystem::path path_;
};

/// Whether Library::load() finds a library at `path`, which has a '/': a regular file, or one that
/// is loaded already, though a chroot may hide its file by now.
[[nodiscard]] bool is_library_at(const std::filesystem::path& path);

/// Checks the headers of an ELF file without loading it: dlopen crashes on a truncated library, and
/// its message for a library of another machine is unclear. Fails with the reason.
[[nodiscard]] Result<void> check_elf_file(const std::filesystem::path& path);

/// The folder of the library (or program) that contains this code; empty: unknown.
[[nodiscard]] std::filesystem::path find_own_folder();

}  // namespace plexus
