// SPDX-License-Identifier: Apache-2.0
#include "core/base/file.hpp"

#include <dlfcn.h>
#include <fstream>
#include <iterator>
#include <system_error>

#include "core/base/immortal.hpp"

namespace plexus {
namespace {

std::filesystem::path locate_own_file() {
  Dl_info info{};
  if (::dladdr(reinterpret_cast<const void*>(&find_own_file), &info) == 0 ||
      info.dli_fname == nullptr) {
    return {};
  }
  std::error_code error;
  std::filesystem::path file = std::filesystem::canonical(info.dli_fname, error);
  return error ? std::filesystem::path() : file;
}

/// Found once, because a chroot may hide it later.
struct OwnFile {
  OwnFile() = default;
  OwnFile(AfterFork /*tag*/, const OwnFile& parents) : path(parents.path) {}
  std::filesystem::path path = locate_own_file();
};

}  // namespace

Result<std::string> read_file(const std::string& path, size_t bytes_max) {
  std::ifstream file(path, std::ios::binary);
  std::string text;
  text.reserve(4096);  // NOLINT(readability-magic-numbers): a page
  for (std::istreambuf_iterator<char> at(file), end; at != end; ++at) {
    if (text.size() == bytes_max) {
      return fail(Code::kInvalidArgument, "'{}' is larger than {} bytes", path, bytes_max);
    }
    text.push_back(*at);
  }
  if (!file.is_open() || file.bad()) {
    return fail(Code::kInvalidArgument, "cannot read the file '{}'", path);
  }
  return text;
}

std::filesystem::path find_own_file() { return Immortal<OwnFile>::instance().path; }

}  // namespace plexus
