// SPDX-License-Identifier: Apache-2.0
// The env plugin: a library of NCCL's env ABI (`ncclEnvPlugin_v1`, `v2`) that provides settings in
// place of the environment (NCCL_ENV_PLUGIN). One per process, until it exits.
//
// Threads: any.
#pragma once

#include <filesystem>
#include <string>

#include "core/base/result.hpp"
#include "core/plugin/registry.hpp"

namespace plexus {

struct EnvPluginOptions {
  std::string plugin;   // NCCL_ENV_PLUGIN: a name, file or path; empty or `none`: no plugin
  std::string folders;  // PLEXUS_PLUGIN_PATH, of the environment
  std::filesystem::path own_folder = NetPluginOptions::find_own_plugin_folder();
};

/// Loads and initialises the plugin, and makes core/base/config look settings up in it. It is
/// finalized when the process exits.
[[nodiscard]] Result<void> install_env_plugin(const EnvPluginOptions& options);

}  // namespace plexus
