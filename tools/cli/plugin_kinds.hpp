// SPDX-License-Identifier: Apache-2.0
// `plexus plugin list|info` for plugins other than net plugins: tuners, profilers and networks that
// reduce.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "core/base/result.hpp"
#include "core/plugin/library.hpp"

namespace plexus {

/// The names in this file under which hosts look for a plugin's table.
[[nodiscard]] std::vector<std::string> find_plugin_entries(const Library& library);
/// "host, cuda": a PLEXUS_MEMORY_* mask.
[[nodiscard]] std::string describe_memory(uint32_t mask);

/// True: the library has no net plugin's table, and its description was printed. `abi`: the version
/// of NCCL's ABI, such as "v4"; empty: the newest.
[[nodiscard]] Result<bool> print_other_kind(const std::string& name, const std::string& abi);
/// Prints the collnet description of a library, if it has one.
[[nodiscard]] Result<void> print_collnet(const Library& library);
/// Prints a line for each library with a name that NCCL looks for (libnccl-net.so,
/// libnccl-tuner-x.so, ...) in the folders of plugins and of the dynamic loader. Only reads their
/// symbols, without loading them.
void list_vendor_libraries(const std::filesystem::path& own_folder, const std::string& folders);
/// Prints a line for each libplexus-collnet-NAME.so.
void list_collnet_plugins(const std::filesystem::path& own_folder, const std::string& folders);

}  // namespace plexus
