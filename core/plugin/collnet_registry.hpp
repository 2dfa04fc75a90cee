// SPDX-License-Identifier: Apache-2.0
// The choice of a communicator's collnet plugin: PLEXUS_COLLNET_PLUGIN, else one in a library of
// NCCL_NET_PLUGIN (or in libnccl-net.so), as in NCCL. Reads no environment.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "core/base/result.hpp"
#include "core/plugin/collnet_plugin.hpp"
#include "core/plugin/library.hpp"

namespace plexus {

/// The plugins that the process has loaded. Communicators share them, because plugins of NCCL's ABI
/// up to v10 are initialised once per process. Threads: any.
class CollnetPluginCache {
 public:
  /// Like load_collnet_plugin(), but loads each library once.
  [[nodiscard]] Result<std::shared_ptr<const CollnetPlugin>> load(const Library& library);

 private:
  std::mutex mutex_;
  std::map<std::filesystem::path, std::shared_ptr<const CollnetPlugin>> plugins_;  // by mutex_
};

struct CollnetPluginOptions {
  std::string plugin;       // PLEXUS_COLLNET_PLUGIN: name, file or path; "none"; empty: see above
  std::string net_plugins;  // NCCL_NET_PLUGIN
  std::string folders;      // PLEXUS_PLUGIN_PATH
  CollnetPluginCache* cache = nullptr;  // null: communicators share nothing
  std::filesystem::path own_folder = find_own_folder();
};

/// The plugin in `library`: of Plexus's ABI, else of NCCL's newest. Null: it has none.
[[nodiscard]] Result<std::shared_ptr<const CollnetPlugin>> load_collnet_plugin(
    const Library& library);

/// Null: the user named none and none was found. A plugin that the user named and that is unusable
/// is an Error.
[[nodiscard]] Result<std::shared_ptr<const CollnetPlugin>> find_collnet_plugin(
    const CollnetPluginOptions& options);

}  // namespace plexus
