// SPDX-License-Identifier: Apache-2.0
// Settings of the plugin, read once at init (README.md lists them).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "plugins/net-chaos/script.hpp"
#include "plugins/support/settings.hpp"

namespace plexus::net_chaos {

/// A function of the plugin that does not return while a file exists.
struct Block {
  std::string function = {};  // "": none
  std::string file = {};
  void block_in(std::string_view called) const;
};

struct Settings {
  Script script;           // PLEXUS_CHAOS_SCRIPT
  uint64_t seed = 1;       // PLEXUS_CHAOS_SEED
  Block block;             // PLEXUS_CHAOS_BLOCK
  std::string inner_name;  // PLEXUS_CHAOS_NET
};

[[nodiscard]] Result<Settings> read_settings(const plugin::SettingReader& read);

}  // namespace plexus::net_chaos
