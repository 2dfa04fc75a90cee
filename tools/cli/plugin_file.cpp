// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

#include "core/base/config.hpp"
#include "tools/cli/commands.hpp"
#include "tools/cli/plugin_check.hpp"

namespace plexus {

namespace fs = std::filesystem;

Result<fs::path> find_plugin_file(const std::string& name) {
  std::error_code ignored;
  if (name.find('/') != std::string::npos || fs::is_regular_file(name, ignored)) {
    return fs::absolute(name, ignored);
  }
  std::vector<fs::path> folders = {find_library_folder()};
  const std::string more = setting_value("PLEXUS_PLUGIN_PATH").value_or("");
  for (size_t at = 0; at < more.size();) {
    const size_t end = std::min(more.find(':', at), more.size());
    folders.emplace_back(more.substr(at, end - at));
    at = end + 1;
  }
  for (const fs::path& folder : folders) {
    for (const std::string& file :
         {name, "libplexus-" + name + ".so", "libplexus-net-" + name + ".so",
          "libnccl-net-" + name + ".so", "libnccl-tuner-" + name + ".so"}) {
      if (fs::is_regular_file(folder / file, ignored)) {
        return folder / file;
      }
    }
  }
  return fail(Code::kInvalidUsage,
              "'{}' is neither a file nor the name of a plugin beside libplexus.so or in "
              "PLEXUS_PLUGIN_PATH",
              name);
}

}  // namespace plexus
