// SPDX-License-Identifier: Apache-2.0
// Which net plugin serves a communicator: from the user's words (NCCL_NET_PLUGIN, NCCL_NET) to a
// file, in this order of folders: beside our own library, PLEXUS_PLUGIN_PATH, the dynamic loader's
// own rules. What the user named and cannot be used is an error in one sentence, never a silent
// step to another network. Called by core/comm at communicator creation and by `plexus plugin`.
//
// Reads no environment: all settings come in `NetPluginOptions`.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.hpp"
#include "core/plugin/net_plugin.hpp"

namespace plexus {

struct NetPluginOptions {
  /// NCCL_NET_PLUGIN: comma list of names, file names or paths, tried in order. `^name` leaves one
  /// out (a leading `^` all of the list). Empty or `none`: no plugin but Plexus's own.
  std::string plugins;
  /// NCCL_NET: the network must have this name (in any case). Empty: any.
  std::string network;
  /// PLEXUS_PLUGIN_PATH: folders, separated by ':'.
  std::string folders;
  /// Where Plexus's own plugins are.
  std::filesystem::path own_folder = find_own_plugin_folder();

  [[nodiscard]] static std::filesystem::path find_own_plugin_folder();
};

/// NCCL_NET_PLUGIN, understood.
struct NetPluginList {
  std::vector<std::string> named;     // in the user's order; empty: Plexus's own
  std::vector<std::string> excluded;  // never used
};
[[nodiscard]] Result<NetPluginList> parse_net_plugin_list(std::string_view text);

/// Files that `name` may mean, most likely first. A name with a '/' means itself.
[[nodiscard]] std::vector<std::string> net_plugin_file_names(std::string_view name);

/// Loads the plugin `name`. An absent plugin's error lists the files looked for and where, and
/// suggests a near name; a plugin that is there and is no good gives its reason.
[[nodiscard]] Result<std::shared_ptr<const NetPlugin>> load_net_plugin(
    const NetPluginOptions& options, std::string_view name);

/// Names of the plugins that lie beside the library and in PLEXUS_PLUGIN_PATH, for listings.
[[nodiscard]] std::vector<std::string> list_net_plugins(const NetPluginOptions& options);

/// The network of one communicator: the first usable plugin that the options allow, with its
/// context. Logs one INFO sentence that says which won, its ABI, its devices and where it was
/// found.
[[nodiscard]] Result<NetContext> open_net(const NetPluginOptions& options,
                                          const NetContextOptions& context);

}  // namespace plexus
