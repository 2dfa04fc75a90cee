// SPDX-License-Identifier: Apache-2.0
#include "core/plugin/env_plugin.hpp"

#include <atomic>
#include <cstdlib>

#include "plugin-api/nccl/env.h"

#include "core/base/config.hpp"
#include "core/base/immortal.hpp"
#include "core/base/log.hpp"
#include "core/plugin/library_search.hpp"
#include "core/plugin/nccl_net/log.hpp"

namespace plexus {
namespace {

/// The NCCL release whose API this library implements, as passed to the plugin.
struct Release {
  uint8_t major = 2;
  uint8_t minor = 32;
  uint8_t patch = 3;
};

/// The installed plugin. Its library is never unloaded.
struct Installed {
  Installed() = default;
  /// In a child made by fork: the plugin was initialised in the parent and is not initialised
  /// again.
  Installed(AfterFork /*tag*/, const Installed& parent)
      : get(parent.get.load(std::memory_order_acquire)) {}
  std::atomic<const char* (*)(const char*)> get{nullptr};
  int32_t (*finalize)() = nullptr;  // set only in the process that initialised the plugin
};
Installed& installed() { return Immortal<Installed>::instance(); }

std::optional<std::string> ask(const char* name) {
  const char* (*const get)(const char*) = installed().get.load(std::memory_order_acquire);
  const char* const value = get == nullptr ? nullptr : get(name);
  return value == nullptr ? std::nullopt : std::optional<std::string>(value);
}

void finalize_at_exit() {
  if (installed().finalize == nullptr) {
    return;
  }
  reset_environment();
  installed().get.store(nullptr, std::memory_order_release);
  (void)installed().finalize();
}

template <class Table, class Init>
Result<void> install(const Library& library, const void* address, const Init& init) {
  const auto& table = *static_cast<const Table*>(address);
  if (table.name == nullptr || table.init == nullptr || table.finalize == nullptr ||
      table.get == nullptr) {
    return fail(Code::kInvalidUsage, "env plugin {} has null entries; this is a bug in the plugin",
                library.path().string());
  }
  const int32_t code = init(table);
  if (code != PLEXUS_OK) {
    return fail(Code::kInvalidUsage,
                "env plugin {} ({}) did not start (code {}); correct its settings, or unset "
                "NCCL_ENV_PLUGIN",
                table.name, library.path().string(), code);
  }
  installed().finalize = table.finalize;
  installed().get.store(table.get, std::memory_order_release);  // pairs with ask()
  set_environment(ask);
  (void)std::atexit(finalize_at_exit);
  PLEXUS_INFO(kEnv, "settings come from env plugin {}, {}", table.name, library.path().string());
  return ok();
}

}  // namespace

Result<void> install_env_plugin(const EnvPluginOptions& options) {
  if (options.plugin.empty() || options.plugin == "none") {
    return ok();
  }
  PLEXUS_TRY(library, find_library({.kind = "env",
                                    .setting = "NCCL_ENV_PLUGIN",
                                    .name = options.plugin,
                                    .folders = options.folders,
                                    .own_folder = options.own_folder}));
  constexpr Release kRelease;
  if (const auto object = library.find_object("ncclEnvPlugin_v2")) {
    return install<nccl_env_v2_t>(library, object->address, [&](const nccl_env_v2_t& table) {
      return table.init(kRelease.major, kRelease.minor, kRelease.patch, "",
                        nccl_net::log_from_nccl_plugin);
    });
  }
  if (const auto object = library.find_object("ncclEnvPlugin_v1")) {
    return install<nccl_env_v1_t>(library, object->address, [&](const nccl_env_v1_t& table) {
      return table.init(kRelease.major, kRelease.minor, kRelease.patch, "");
    });
  }
  return fail(Code::kInvalidUsage,
              "{} has neither ncclEnvPlugin_v1 nor v2: it is not an env plugin; correct the name "
              "in NCCL_ENV_PLUGIN",
              library.path().string());
}

}  // namespace plexus
