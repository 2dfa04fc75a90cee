// SPDX-License-Identifier: Apache-2.0
#include "core/plugin/library.hpp"

#include <dlfcn.h>
#include <elf.h>

#define BOOST_DLL_USE_STD_FS
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <mutex>
#include <system_error>
#include <vector>

#include <boost/dll/shared_library.hpp>

#include "core/base/file.hpp"
#include "core/base/immortal.hpp"
#include "core/base/stdio_held.hpp"

namespace plexus {
namespace {

namespace fs = std::filesystem;

struct Loading {
  std::mutex mutex;
};

/// The ELF machine number of this build; 0: unknown, not compared.
constexpr uint16_t own_machine() {
#if defined(__x86_64__)
  return EM_X86_64;
#elif defined(__aarch64__)
  return EM_AARCH64;
#else
  return 0;
#endif
}

/// Real libraries have about a dozen program headers; more means a damaged file.
constexpr uint16_t kProgramHeadersMax = 512;

Result<void> check_segments(std::ifstream& file, const Elf64_Ehdr& header, uint64_t file_bytes) {
  if (header.e_phentsize != sizeof(Elf64_Phdr) || header.e_phnum > kProgramHeadersMax) {
    return fail(Code::kSystemError, "its program headers are damaged");
  }
  std::vector<Elf64_Phdr> segments(header.e_phnum);
  const auto table_bytes = static_cast<std::streamsize>(segments.size() * sizeof(Elf64_Phdr));
  file.seekg(static_cast<std::streamoff>(header.e_phoff));
  if (!file.read(reinterpret_cast<char*>(segments.data()), table_bytes)) {
    return fail(Code::kSystemError, "it is truncated (its program headers are missing)");
  }
  for (const Elf64_Phdr& segment : segments) {
    const bool fits =
        segment.p_filesz <= file_bytes && segment.p_offset <= file_bytes - segment.p_filesz;
    if (segment.p_type == PT_LOAD && !fits) {
      return fail(Code::kSystemError,
                  "it is truncated (it has {} bytes, a segment of {} bytes starts at {})",
                  file_bytes, segment.p_filesz, segment.p_offset);
    }
  }
  return ok();
}

/// Libraries that are loaded are known by the path that they were loaded from.
bool is_loaded(const fs::path& path) {
  void* const loaded = ::dlopen(path.c_str(), RTLD_LAZY | RTLD_NOLOAD);
  if (loaded != nullptr) {
    ::dlclose(loaded);
  }
  return loaded != nullptr;
}

}  // namespace

bool is_library_at(const fs::path& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored) || is_loaded(path);
}

Result<void> check_elf_file(const fs::path& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (error || !fs::exists(status)) {
    return fail(Code::kSystemError, "there is no such file");
  }
  if (!fs::is_regular_file(status)) {
    return fail(Code::kSystemError, "it is not a regular file");
  }
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    return fail(Code::kSystemError, "it cannot be read ({})", std::strerror(errno));
  }
  const uint64_t file_bytes = fs::file_size(path, error);
  Elf64_Ehdr header{};
  if (error || !file.read(reinterpret_cast<char*>(&header), sizeof header) ||
      std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0) {
    return fail(Code::kSystemError, "it is not a shared library (no ELF header)");
  }
  if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_type != ET_DYN) {
    return fail(Code::kSystemError, "it is not a 64-bit shared library (ELF class {}, type {})",
                static_cast<int>(header.e_ident[EI_CLASS]), header.e_type);
  }
  if (own_machine() != 0 && header.e_machine != own_machine()) {
    return fail(Code::kSystemError, "it was built for another machine (ELF machine {}, here {})",
                header.e_machine, own_machine());
  }
  return check_segments(file, header, file_bytes);
}

Result<Library> Library::load(const fs::path& path) {
  if (path == kStaticPlugin) {
    void* const program = ::dlopen(nullptr, RTLD_NOW | RTLD_LOCAL);
    if (program == nullptr) {
      return fail(Code::kSystemError, "{}",
                  ::dlerror());  // NOLINT(concurrency-mt-unsafe): as below
    }
    return Library{program, path};
  }
  const bool is_bare_name = !path.has_parent_path();
  std::error_code ignored;
  if (!is_bare_name && (fs::exists(path, ignored) || !is_loaded(path))) {
    PLEXUS_TRY(check_elf_file(path));
  }
  const StdioHeld stdio;  // constructors of a library may open descriptors
  // One at a time, because Boost reads the dynamic linker's data without the linker's lock.
  const std::lock_guard lock(Immortal<Loading>::instance().mutex);
  namespace dll = boost::dll;
  const auto mode =
      dll::load_mode::rtld_now | dll::load_mode::rtld_local | dll::load_mode::search_system_folders;
  dll::shared_library library;
  std::error_code error;
  library.load(path, error, mode);
  if (error) {
    const char* reason = ::dlerror();  // NOLINT(concurrency-mt-unsafe): per thread in glibc
    return fail(Code::kSystemError, "{}", reason != nullptr ? reason : error.message());
  }
  fs::path file = library.location(error);
  if (error) {
    file = path;
  }
  // Boost's destructor would unload it; another reference with RTLD_NODELETE keeps it loaded.
  void* pinned = ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (pinned == nullptr) {
    return fail(Code::kSystemError, "{}", ::dlerror());  // NOLINT(concurrency-mt-unsafe): see above
  }
  const fs::path absolute = fs::absolute(file, ignored);
  return Library{pinned, ignored ? file : absolute};
}

Library::Address Library::find_symbol(const char* name) const noexcept {
  return reinterpret_cast<Address>(::dlsym(native_, name));
}

std::optional<Library::Object> Library::find_object(const char* name) const noexcept {
  const void* const address = ::dlsym(native_, name);
  if (address == nullptr) {
    return std::nullopt;
  }
  Object object{.address = address, .size_bytes = 0};
  Dl_info info{};
  void* extra = nullptr;
  if (::dladdr1(address, &info, &extra, RTLD_DL_SYMENT) != 0 && info.dli_saddr == address &&
      extra != nullptr) {
    object.size_bytes = static_cast<const Elf64_Sym*>(extra)->st_size;
  }
  return object;
}

fs::path find_own_folder() { return find_own_file().parent_path(); }

}  // namespace plexus
