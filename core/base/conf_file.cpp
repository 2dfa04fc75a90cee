// SPDX-License-Identifier: Apache-2.0
#include "core/base/conf_file.hpp"

#include <algorithm>
#include <cstdlib>
#include <vector>

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

/// Calls `use(name, value, file)` for each variable, in the order of precedence, until it returns
/// false. `#` in column 1 starts a comment. A file that cannot be read has none.
template <class Use>
void for_each_variable(const Use& use) {
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
      const bool is_variable = equals != std::string::npos && equals > 0 &&
                               !line.starts_with('#') && line.find('\0') == std::string::npos;
      if (is_variable && !use(line.substr(0, equals), line.substr(equals + 1), path)) {
        return;
      }
    }
  }
}

}  // namespace

void export_conf_files() {
  for_each_variable([](const std::string& name, const std::string& value, const std::string&) {
    if (std::getenv(name.c_str()) == nullptr) {
      (void)setenv(name.c_str(), value.c_str(), 0);
    }
    return true;
  });
}

std::optional<ConfValue> find_in_conf_files(std::string_view name) {
  std::optional<ConfValue> found;
  for_each_variable([&](const std::string& key, const std::string& value, const std::string& file) {
    if (key == name) {
      found = ConfValue{.value = value, .file = file};
    }
    return !found.has_value();
  });
  return found;
}

}  // namespace plexus
