// SPDX-License-Identifier: Apache-2.0
#include "core/base/file.hpp"

#include <fstream>
#include <iterator>

namespace plexus {

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

}  // namespace plexus
