// SPDX-License-Identifier: Apache-2.0
// What `plexus plugin list|info` says of plugins that are no net plugins: tuners, profilers and
// networks that reduce.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "core/base/result.hpp"
#include "core/plugin/library.hpp"

namespace plexus {

/// Every name under which hosts look for a plugin's table, and that this file has.
[[nodiscard]] std::vector<std::string> find_plugin_entries(const Library& library);
/// "host, cuda": a PLEXUS_MEMORY_* mask.
[[nodiscard]] std::string describe_memory(uint32_t mask);

/// True: it has no net plugin's table, and all that there is to say is printed. `abi`: the version
/// of NCCL's ABI to choose, such as "v4"; empty: the newest.
[[nodiscard]] Result<bool> print_other_kind(const std::string& name, const std::string& abi);
/// The collnet side of a library; nothing when it has none.
[[nodiscard]] Result<void> print_collnet(const Library& library);
/// A line for each library with a name that NCCL looks for (libnccl-net.so, libnccl-tuner-x.so,
/// ...) in the folders of plugins and of the dynamic loader. Only their symbols are read: none is
/// loaded.
void list_vendor_libraries(const std::filesystem::path& own_folder, const std::string& folders);
/// A line for each libplexus-collnet-NAME.so.
void list_collnet_plugins(const std::filesystem::path& own_folder, const std::string& folders);

}  // namespace plexus
