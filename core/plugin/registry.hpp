// SPDX-License-Identifier: Apache-2.0
// The choice of a communicator's net plugin: from the settings (NCCL_NET_PLUGIN, NCCL_NET) to a
// file, in this order of folders: beside the Plexus library, `plexus` there (where plugins are
// installed), PLEXUS_PLUGIN_PATH, the dynamic loader's rules. A named plugin that is unusable is an
// error in one sentence or, if the list has further entries, a WARN; Plexus never switches to
// another network silently. Without a name, `libnccl-net.so` is tried first, as in NCCL; if it is
// missing or unusable, that is no error, and the INFO line about the choice says so.
//
// Reads no environment: all settings come in `NetPluginOptions`.
//
//   PLEXUS_TRY(list, parse_net_plugin_list("between=net-socket?NCCL_SOCKET_IFNAME==eth1,^ib"));
//   return list.named.size() + list.excluded.size();  // 1 + 1
#pragma once

#include <filesystem>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.hpp"
#include "core/plugin/net_plugin.hpp"

namespace plexus {

/// The plugins that the process has loaded. Communicators share them, because plugins of NCCL's ABI
/// up to v10 are initialised once per process. Threads: any.
class NetPluginCache {
 public:
  /// The plugin loaded earlier from the same file for the same ABI, else `plugin`.
  [[nodiscard]] std::shared_ptr<const NetPlugin> intern(std::shared_ptr<const NetPlugin> plugin);

 private:
  std::mutex mutex_;
  std::vector<std::shared_ptr<const NetPlugin>> plugins_;  // guarded by mutex_
};

struct NetPluginOptions {
  /// NCCL_NET_PLUGIN: comma list of names, file names or paths, tried in order. `^name` excludes
  /// one (a leading `^` excludes all of the list). Empty: `libnccl-net.so` if it exists, else
  /// Plexus's own plugins. `none`: Plexus's own plugins.
  std::string plugins;
  /// PLEXUS_NET_FALLBACK: use Plexus's own plugins when none of `plugins` is usable, as NCCL does.
  bool falls_back = false;
  /// NCCL_NET: comma list of allowed network names (case is ignored). Empty: any.
  std::string network;
  /// NCCL_ALLNET_ENABLE: use all usable networks of the list and Plexus's own instead of the first.
  bool all = false;
  /// PLEXUS_PLUGIN_PATH: folders, separated by ':'.
  std::string folders;
  /// PLEXUS_NET_ABI and PLEXUS_NET_V11.
  NetLoadOptions load;
  /// Borrowed; null: communicators share nothing.
  NetPluginCache* cache = nullptr;
  /// The folder of Plexus's own plugins.
  std::filesystem::path own_folder = find_own_plugin_folder();

  [[nodiscard]] static std::filesystem::path find_own_plugin_folder();
};

/// One entry of NCCL_NET_PLUGIN: [LABEL=]NAME[?SETTING=VALUE[&SETTING=VALUE]...].
struct NetPluginEntry {
  std::string name;
  /// Replaces the plugin's network name, so that one plugin can be used twice.
  std::string label = {};
  /// Settings for this use of the plugin; they win over the environment. A ';' in a VALUE means a
  /// comma.
  std::vector<std::pair<std::string, std::string>> settings = {};
  friend bool operator==(const NetPluginEntry&, const NetPluginEntry&) = default;
};

/// NCCL_NET_PLUGIN, parsed.
struct NetPluginList {
  std::vector<NetPluginEntry> named;  // in the user's order; empty: the default
  std::vector<std::string> excluded;  // never used
  bool has_none = false;              // `none`: no library but Plexus's own
};
[[nodiscard]] Result<NetPluginList> parse_net_plugin_list(std::string_view text);

/// Files that `name` may mean, most likely first: NCCL's, then Plexus's; for "net-NAME" only
/// Plexus's. A name with a '/' is a path.
[[nodiscard]] std::vector<std::string> net_plugin_file_names(std::string_view name);

/// Loads the plugin `name`. If it is absent, the Error lists the files and places searched and
/// suggests a similar name; if it is unusable, the Error gives the reason.
[[nodiscard]] Result<std::shared_ptr<const NetPlugin>> load_net_plugin(
    const NetPluginOptions& options, std::string_view name);

/// Names of the plugins in `list_plugin_folders`, for listings.
[[nodiscard]] std::vector<std::string> list_net_plugins(const NetPluginOptions& options);

struct OpenNet {
  std::string name;  // the name by which ranks find it in common; unique in a list
  NetContext context;
};

/// The networks of one communicator in order of preference, at least one: the first usable plugin
/// that the options allow, with its context; with `all`, every usable one. Logs one INFO sentence
/// with those used, their ABI, devices and files, and the reasons against the others.
///
/// A named plugin that is unusable here is a WARN with its reason while others are left to try, and
/// an Error only when none is: not every host has every network.
[[nodiscard]] Result<std::vector<OpenNet>> open_nets(const NetPluginOptions& options,
                                                     const NetContextOptions& context);
/// The first network of open_nets().
[[nodiscard]] Result<NetContext> open_net(const NetPluginOptions& options,
                                          const NetContextOptions& context);

}  // namespace plexus
