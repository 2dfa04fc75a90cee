// SPDX-License-Identifier: Apache-2.0
// The log plugin: a library of NCCL's log ABI (`ncclLogPlugin_v1`) that is told of every line of
// the log (NCCL_LOG_PLUGIN). One per process, for its life; a child made by fork has none.
//
// Threads: any.
#pragma once

#include <filesystem>
#include <string>

#include "core/plugin/registry.hpp"

namespace plexus {

struct LogPluginOptions {
  std::string plugin;   // NCCL_LOG_PLUGIN: a name, file or path; empty or `none`: no plugin
  std::string folders;  // PLEXUS_PLUGIN_PATH
  std::filesystem::path own_folder = NetPluginOptions::find_own_plugin_folder();
};

/// Loads and initialises the plugin. What keeps it from that is a WARN, never an error.
void install_log_plugin(const LogPluginOptions& options);

}  // namespace plexus
