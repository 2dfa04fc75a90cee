// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

#include "core/base/config.hpp"
#include "core/plugin/library_search.hpp"
#include "tools/cli/commands.hpp"
#include "tools/cli/plugin_check.hpp"

namespace plexus {

namespace fs = std::filesystem;

Result<fs::path> find_plugin_file(const std::string& name) {
  std::error_code ignored;
  if (name.find('/') != std::string::npos || fs::is_regular_file(name, ignored)) {
    return fs::absolute(name, ignored);
  }
  const std::string more = setting_value("PLEXUS_PLUGIN_PATH").value_or("");
  for (const fs::path& folder : list_plugin_folders(find_library_folder(), more)) {
    for (const std::string& file :
         {name, "libplexus-" + name + ".so", "libplexus-net-" + name + ".so",
          "libnccl-net-" + name + ".so", "libnccl-tuner-" + name + ".so"}) {
      if (fs::is_regular_file(folder / file, ignored)) {
        return folder / file;
      }
    }
  }
  return fail(Code::kInvalidUsage,
              "'{}' is neither a file nor the name of a plugin beside libplexus.so, in the folder "
              "plexus there, or in PLEXUS_PLUGIN_PATH",
              name);
}

}  // namespace plexus
