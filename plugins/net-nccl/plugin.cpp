// SPDX-License-Identifier: Apache-2.0
// net-nccl: a library of NCCL's net interface as a plugin of Plexus's. For plugins that wrap
// another one, as net-chaos does: Plexus itself loads such libraries without it. The work is done
// by core/plugin/nccl_net, of which this plugin has a copy, so that it needs no libplexus.
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "plugin-api/plexus_net.h"

#include "core/base/immortal.hpp"
#include "core/plugin/guarded.hpp"
#include "core/plugin/library_search.hpp"
#include "core/plugin/nccl_net/adapter.hpp"
#include "plugins/support/descriptor.hpp"
#include "plugins/support/settings.hpp"

namespace plexus {
namespace {

/// The libraries of this process by file: those up to v10 are initialised once.
struct Loaded {
  std::mutex mutex;
  std::map<std::string, std::shared_ptr<const NetPlugin>> plugins;  // guarded by mutex
};

Result<std::shared_ptr<const NetPlugin>> load(const plexus_net_config_t& config) {
  const plugin::SettingReader read(config);
  const char* const name = read("PLEXUS_NCCL_NET");
  PLEXUS_TRY(library, find_library({.kind = "net",
                                    .setting = "PLEXUS_NCCL_NET",
                                    .name = name == nullptr || *name == 0 ? "libnccl-net.so" : name,
                                    .folders = "",
                                    .own_folder = find_own_folder()}));
  auto& loaded = Immortal<Loaded>::instance();
  const std::scoped_lock lock(loaded.mutex);
  auto& found = loaded.plugins[library.path().string()];
  if (found == nullptr) {
    PLEXUS_TRY(choice, nccl_net::choose_net(library, 0, nccl_net::V11Layout::kBySize));
    PLEXUS_TRY(adapted, nccl_net::adapt(library, std::move(choice)));
    found = std::move(adapted);
  }
  return found;
}

int32_t init(const plexus_net_config_t* config, plexus_net_context_t** context) {
  return guarded([&] {
    auto loaded = load(*config);
    if (loaded.has_error()) {
      config->log(config->log_sink, PLEXUS_LOG_ERROR, __FILE__, __LINE__,
                  loaded.error().message().c_str());
      return static_cast<int32_t>(loaded.error().code());
    }
    return loaded.value()->init(config, context);
  });
}

plexus_net_ops_t make_table() {
  plexus_net_ops_t table = nccl_net::make_ops();
  table.init = init;
  return table;
}

}  // namespace
}  // namespace plexus

const plexus_plugin_t* plexus_plugin_query(uint32_t host_abi) {
  static const plexus_net_ops_t table = plexus::make_table();
  static const plexus_plugin_t plugin = plexus::plugin::describe({.name = "NCCL", .net = &table});
  return plexus::plugin::answer(host_abi, plugin);
}
