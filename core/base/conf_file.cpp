// SPDX-License-Identifier: Apache-2.0
#include "core/base/conf_file.hpp"

#include <algorithm>
#include <cstdlib>

#include "guest/file.hpp"

namespace plexus {
namespace {

constexpr size_t kConfBytesMax = size_t{1} << 20;

std::vector<std::string> conf_files() {
  std::vector<std::string> files;
  if (const char* const named = std::getenv("NCCL_CONF_FILE"); named != nullptr) {
    files.emplace_back(named);
  } else if (const char* const home = std::getenv("HOME"); home != nullptr) {
    files.push_back(std::string(home) + "/.nccl.conf");
  }
  files.emplace_back("/etc/nccl.conf");
  return files;
}

}  // namespace

/// `#` in column 1 starts a comment. A file that cannot be read has no variable.
ConfFiles ConfFiles::read() {
  ConfFiles files;
  for (const std::string& path : conf_files()) {
    const std::string text = read_regular_file(path, kConfBytesMax).text;
    for (size_t at = 0; at < text.size();) {
      const size_t end = std::min(text.find('\n', at), text.size());
      std::string line = text.substr(at, end - at);
      at = end + 1;
      if (!line.empty() && line.back() == '\r') {
        line.pop_back();
      }
      const size_t equals = line.find('=');
      if (equals != std::string::npos && equals > 0 && !line.starts_with('#') &&
          line.find('\0') == std::string::npos) {
        files.variables_.push_back(
            {line.substr(0, equals), {.value = line.substr(equals + 1), .file = path}});
      }
    }
  }
  return files;
}

void ConfFiles::export_all() const {
  for (const Variable& variable : variables_) {
    (void)setenv(variable.name.c_str(), variable.value.value.c_str(), 0);
  }
}

std::optional<ConfValue> ConfFiles::find(std::string_view name) const {
  const auto at = std::find_if(variables_.begin(), variables_.end(),
                               [&](const Variable& variable) { return variable.name == name; });
  return at == variables_.end() ? std::nullopt : std::optional(at->value);
}

}  // namespace plexus
