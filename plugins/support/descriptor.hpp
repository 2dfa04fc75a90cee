// SPDX-License-Identifier: Apache-2.0
// The descriptor of a plugin, and what its plexus_plugin_query answers.
#pragma once

#include "plugin-api/plexus_plugin.h"

namespace plexus::plugin {

struct Identity {
  const char* name;
  const plexus_net_ops* net = nullptr;  // one of the two tables
  const plexus_tuner_ops* tuner = nullptr;
};

constexpr plexus_plugin_t describe(const Identity& plugin) {
  return {
      .magic = PLEXUS_PLUGIN_MAGIC,
      .struct_size = sizeof(plexus_plugin_t),
      .abi_major = PLEXUS_ABI_MAJOR,
      .abi_minor = PLEXUS_ABI_MINOR,
      .kind = plugin.net != nullptr ? PLEXUS_KIND_NET : PLEXUS_KIND_TUNER,
      .reserved = 0,
      .name = plugin.name,
      .version = PLEXUS_VERSION,
      .net = plugin.net,
      .tuner = plugin.tuner,
  };
}

/// Null: the plugin cannot work with this host.
constexpr const plexus_plugin_t* answer(uint32_t host_abi, const plexus_plugin_t& plugin) {
  return host_abi >> 16 == PLEXUS_ABI_MAJOR ? &plugin : nullptr;
}

}  // namespace plexus::plugin
