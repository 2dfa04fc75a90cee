// SPDX-License-Identifier: Apache-2.0
// The settings of a plugin's context: from the host, which knows the settings for this use of the
// plugin, or from the environment if the host is too old for that.
//
//   const plexus::plugin::SettingReader read(config);  // in init()
//   return read("NCCL_SOCKET_IFNAME");                 // nullptr: not set
#pragma once

#include <cstddef>
#include <cstdlib>

#include "plugin-api/plexus_plugin.h"

namespace plexus::plugin {

/// A value; borrows from the config that init() got, of any kind of plugin.
class SettingReader {
 public:
  template <class Config>
  explicit SettingReader(const Config& config) noexcept : sink_(config.log_sink) {
    constexpr size_t kEnd = offsetof(Config, setting) + sizeof(config.setting);
    setting_ = config.struct_size >= kEnd ? config.setting : nullptr;
  }
  /// Null: not set.
  [[nodiscard]] const char* operator()(const char* name) const {
    return setting_ != nullptr
               ? setting_(sink_, name)
               : std::getenv(
                     name);  // NOLINT(concurrency-mt-unsafe): settings are read at init only
  }

 private:
  plexus_log_sink_t* sink_;
  plexus_setting_fn setting_ = nullptr;
};

}  // namespace plexus::plugin
