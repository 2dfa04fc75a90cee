// SPDX-License-Identifier: Apache-2.0
// Which net plugin serves a communicator: from the user's words (NCCL_NET_PLUGIN, NCCL_NET) to a
// file, in this order of folders: beside our own library, PLEXUS_PLUGIN_PATH, the dynamic loader's
// own rules. What the user named and cannot be used is an error in one sentence, or, where the list
// goes on, a WARN: never a silent step to another network. When nothing is named, `libnccl-net.so`
// is looked for first, as by NCCL; that it is missing or no good is no error, and the INFO line
// that tells the choice says so. Called by core/comm at communicator creation and by `plexus
// plugin`.
//
// Reads no environment: all settings come in `NetPluginOptions`.
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

/// The plugins that a process has loaded: communicators share them, for those of NCCL's ABI up to
/// v10 are initialised once per process. Threads: any.
class NetPluginCache {
 public:
  /// The plugin that was loaded before from the same file for the same ABI, else `plugin`.
  [[nodiscard]] std::shared_ptr<const NetPlugin> intern(std::shared_ptr<const NetPlugin> plugin);

 private:
  std::mutex mutex_;
  std::vector<std::shared_ptr<const NetPlugin>> plugins_;  // guarded by mutex_
};

struct NetPluginOptions {
  /// NCCL_NET_PLUGIN: comma list of names, file names or paths, tried in order. `^name` leaves one
  /// out (a leading `^` all of the list). Empty: `libnccl-net.so` when there is one, else Plexus's
  /// own. `none`: Plexus's own.
  std::string plugins;
  /// PLEXUS_NET_FALLBACK: Plexus's own when none of `plugins` can be used, as NCCL does.
  bool falls_back = false;
  /// NCCL_NET: comma list; the network must have one of these names (in any case). Empty: any.
  std::string network;
  /// NCCL_ALLNET_ENABLE: all usable networks of the list and Plexus's own, not the first alone.
  bool all = false;
  /// PLEXUS_PLUGIN_PATH: folders, separated by ':'.
  std::string folders;
  /// PLEXUS_NET_ABI and PLEXUS_NET_V11.
  NetLoadOptions load;
  /// Borrowed; null: nothing is shared with other communicators.
  NetPluginCache* cache = nullptr;
  /// Where Plexus's own plugins are.
  std::filesystem::path own_folder = find_own_plugin_folder();

  [[nodiscard]] static std::filesystem::path find_own_plugin_folder();
};

/// One entry of NCCL_NET_PLUGIN: [LABEL=]NAME[?SETTING=VALUE[&SETTING=VALUE]...].
struct NetPluginEntry {
  std::string name;
  /// The network's name, in place of the plugin's own: so that one plugin can be used twice.
  std::string label = {};
  /// For this use of the plugin alone; wins over the environment. A ';' in a VALUE means a comma.
  std::vector<std::pair<std::string, std::string>> settings = {};
  friend bool operator==(const NetPluginEntry&, const NetPluginEntry&) = default;
};

/// NCCL_NET_PLUGIN, understood.
struct NetPluginList {
  std::vector<NetPluginEntry> named;  // in the user's order; empty: the default
  std::vector<std::string> excluded;  // never used
  bool has_none = false;              // `none`: no library but Plexus's own
};
[[nodiscard]] Result<NetPluginList> parse_net_plugin_list(std::string_view text);

/// Files that `name` may mean, most likely first: NCCL's, then ours; of "net-NAME" ours. A name
/// with a '/' means itself.
[[nodiscard]] std::vector<std::string> net_plugin_file_names(std::string_view name);

/// Loads the plugin `name`. An absent plugin's error lists the files looked for and where, and
/// suggests a near name; a plugin that is there and is no good gives its reason.
[[nodiscard]] Result<std::shared_ptr<const NetPlugin>> load_net_plugin(
    const NetPluginOptions& options, std::string_view name);

/// Names of the plugins that lie beside the library and in PLEXUS_PLUGIN_PATH, for listings.
[[nodiscard]] std::vector<std::string> list_net_plugins(const NetPluginOptions& options);

struct OpenNet {
  std::string name;  // under which ranks find it in common; once in a list
  NetContext context;
};

/// The networks of one communicator, in order of preference, never none: the first usable plugin
/// that the options allow, with its context; with `all`, every one. Logs one INFO sentence that
/// says which are used, their ABI, devices and files, and why the others are not.
///
/// A named plugin that cannot be used here is a WARN with its reason while others are left to try,
/// and an error only when none is: not every host has every network.
[[nodiscard]] Result<std::vector<OpenNet>> open_nets(const NetPluginOptions& options,
                                                     const NetContextOptions& context);
/// The first of them.
[[nodiscard]] Result<NetContext> open_net(const NetPluginOptions& options,
                                          const NetContextOptions& context);

}  // namespace plexus
