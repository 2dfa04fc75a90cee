// SPDX-License-Identifier: Apache-2.0
// Which collnet plugin serves a communicator: PLEXUS_COLLNET_PLUGIN, else one that is in a library
// of NCCL_NET_PLUGIN (or in libnccl-net.so), where NCCL looks. Reads no environment.
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

/// The plugins that a process has loaded: communicators share them, for those of NCCL's ABI up to
/// v10 are initialised once per process. Threads: any.
class CollnetPluginCache {
 public:
  /// As load_collnet_plugin.
  [[nodiscard]] Result<std::shared_ptr<const CollnetPlugin>> load(const Library& library);

 private:
  std::mutex mutex_;
  std::map<std::filesystem::path, std::shared_ptr<const CollnetPlugin>> plugins_;  // by mutex_
};

struct CollnetPluginOptions {
  std::string plugin;       // PLEXUS_COLLNET_PLUGIN: name, file or path; "none"; empty: see above
  std::string net_plugins;  // NCCL_NET_PLUGIN
  std::string folders;      // PLEXUS_PLUGIN_PATH
  CollnetPluginCache* cache = nullptr;  // null: nothing is shared with other communicators
  std::filesystem::path own_folder = find_own_folder();
};

/// The plugin in `library`: our ABI's, else the newest of NCCL's. Null: it has none.
[[nodiscard]] Result<std::shared_ptr<const CollnetPlugin>> load_collnet_plugin(
    const Library& library);

/// Null: the user named none, and there is none. What the user named and cannot be used is an
/// error.
[[nodiscard]] Result<std::shared_ptr<const CollnetPlugin>> find_collnet_plugin(
    const CollnetPluginOptions& options);

}  // namespace plexus
