// SPDX-License-Identifier: Apache-2.0
#include "core/plugin/log_plugin.hpp"

#include <atomic>
#include <string>
#include <sys/syscall.h>
#include <unistd.h>

#include "plugin-api/nccl/log.h"

#include "core/base/log.hpp"
#include "core/plugin/library_search.hpp"

namespace plexus {
namespace {

/// The installed plugin, whose library is never unloaded. Written once.
struct InstalledLog {
  std::atomic<void (*)(void*, const nccl_log_record_v1_t*)> on_record{nullptr};
  void* context = nullptr;
};
InstalledLog& installed_log() {
  static InstalledLog installed;  // no destructor: threads may log until the process ends
  return installed;
}

void tell_plugin(const LogRecord& record) {
  const InstalledLog& installed = installed_log();
  const auto on_record = installed.on_record.load(std::memory_order_acquire);
  const std::string message(record.text);
  const nccl_log_record_v1_t passed{.level = static_cast<int32_t>(record.level),
                                    .subsystems = static_cast<unsigned long>(record.subsystem),
                                    .file = record.file,
                                    .func = "",
                                    .line = record.line,
                                    .code = static_cast<int32_t>(record.code),
                                    .format = message.c_str(),
                                    .message = message.c_str(),
                                    .host_name = record.host,
                                    .pid = getpid(),
                                    .tid = static_cast<int32_t>(syscall(SYS_gettid)),
                                    .cuda_device = -1};
  on_record(installed.context, &passed);
}

Result<void> install(const LogPluginOptions& options) {
  PLEXUS_TRY(library, find_library({.kind = "log",
                                    .setting = "NCCL_LOG_PLUGIN",
                                    .name = options.plugin,
                                    .folders = options.folders,
                                    .own_folder = options.own_folder}));
  const auto object = library.find_object("ncclLogPlugin_v1");
  if (!object.has_value()) {
    return fail(Code::kInvalidUsage,
                "{} has no ncclLogPlugin_v1: it is not a log plugin; correct the name in "
                "NCCL_LOG_PLUGIN",
                library.path().string());
  }
  const auto& table = *static_cast<const nccl_log_v1_t*>(object->address);
  if (table.name == nullptr || table.on_record == nullptr) {
    return fail(Code::kInvalidUsage, "log plugin {} has null entries; this is a bug in the plugin",
                library.path().string());
  }
  InstalledLog& installed = installed_log();
  if (const int32_t code = table.init == nullptr ? PLEXUS_OK : table.init(&installed.context);
      code != PLEXUS_OK) {
    return fail(Code::kInvalidUsage,
                "log plugin {} ({}) did not start (code {}); correct its settings, or unset "
                "NCCL_LOG_PLUGIN",
                table.name, library.path().string(), code);
  }
  installed.on_record.store(table.on_record,
                            std::memory_order_release);  // pairs with tell_plugin()
  set_log_sink(tell_plugin);
  PLEXUS_INFO(kEnv, "the log goes to log plugin {}, {}, too", table.name, library.path().string());
  return ok();
}

}  // namespace

void install_log_plugin(const LogPluginOptions& options) {
  if (options.plugin.empty() || options.plugin == "none") {
    return;
  }
  if (const auto installed = install(options); installed.has_error()) {
    PLEXUS_WARN("{}", installed.error().message());
  }
}

}  // namespace plexus
