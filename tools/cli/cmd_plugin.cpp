// SPDX-License-Identifier: Apache-2.0
// `plexus plugin list|info`: the plugins that the loader finds, and the description in a plugin
// file (check and bench: plugin_check.cpp, certificates: plugin_certify.cpp). Uses the library's
// search, with the folder of libplexus.
#include <dlfcn.h>
#include <filesystem>
#include <memory>
#include <nccl.h>
#include <optional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/core.h>
#include <fmt/ranges.h>

#include "core/base/config.hpp"
#include "core/plugin/library.hpp"
#include "core/plugin/registry.hpp"
#include "tools/cli/commands.hpp"
#include "tools/cli/plugin_check.hpp"
#include "tools/cli/plugin_kinds.hpp"

namespace plexus {

std::filesystem::path find_library_folder() {
  Dl_info info{};
  if (dladdr(reinterpret_cast<const void*>(&ncclGetVersion), &info) == 0 ||
      info.dli_fname == nullptr) {
    return {};
  }
  std::error_code error;
  const auto file = std::filesystem::canonical(info.dli_fname, error);
  return error ? std::filesystem::path() : file.parent_path();
}

namespace {

NetPluginOptions read_options() {
  NetPluginOptions options;
  options.folders = setting_value("PLEXUS_PLUGIN_PATH").value_or("");
  options.load.abi = setting_value("PLEXUS_NET_ABI").value_or("");
  options.load.v11 = setting_value("PLEXUS_NET_V11").value_or("");
  options.own_folder = find_library_folder();
  return options;
}

template <class T>
std::string known(const std::optional<T>& value) {
  return value ? fmt::format("{}", *value) : "unknown";
}

int run_list() {
  const NetPluginOptions options = read_options();
  fmt::print(
      "searched: {} (beside the library), {}, PLEXUS_PLUGIN_PATH ({}), then the dynamic loader's "
      "own paths\n",
      options.own_folder.string(), (options.own_folder / "plexus").string(),
      options.folders.empty() ? "not set" : options.folders);
  const std::vector<std::string> names = list_net_plugins(options);
  if (names.empty()) {
    fmt::print("no net plugin was found: jobs on one host run without one, others need one\n");
  }
  for (const std::string& name : names) {
    const auto plugin = load_net_plugin(options, name);
    if (!plugin) {
      fmt::print("net-{:<12} unusable: {}\n", name, plugin.error().message());
      continue;
    }
    fmt::print("net-{:<12} {}, {}\n", name, describe_plugin(plugin.value()->descriptor()),
               plugin.value()->path().string());
  }
  list_collnet_plugins(options.own_folder, options.folders);
  list_vendor_libraries(options.own_folder, options.folders);
  return kExitOk;
}

void print_device(uint32_t device, const NetProperties& p) {
  fmt::print("device {}: {}\n", device, p.name);
  fmt::print("  PCI path            {}\n", p.pci_path.empty() ? "none (virtual)" : p.pci_path);
  fmt::print("  GUID, port          {}, {}\n", p.guid ? fmt::format("{:#x}", *p.guid) : "unknown",
             p.port);
  fmt::print("  speed               {}\n",
             p.speed_mbit_per_s ? fmt::format("{} Mbit/s", *p.speed_mbit_per_s) : "unknown");
  fmt::print("  latency             {}\n",
             p.latency ? fmt::format("{} ns", p.latency->count()) : "unknown");
  fmt::print("  memory              {}\n", describe_memory(p.pointer_support));
  fmt::print("  longest message     {} B\n", p.message_bytes_max);
  fmt::print("  connections         {}\n", p.comms_max);
  fmt::print("  requests, grouped   {} in flight per connection, {} buffers per receive\n",
             p.requests_max, p.recvs_max);
  fmt::print("  registration        {}\n", p.registration_is_global ? "global" : "per range");
  fmt::print("  flush               {}\n",
             p.force_flush ? "after every receive into GPU memory" : "when the GPU needs it");
  fmt::print("  fabric, rail, plane {}, {}, {}\n", known(p.fabric_id), known(p.rail_id),
             known(p.plane_id));
}

/// `abi`: overrides the setting; empty: the setting.
Result<void> print_info(const std::string& name, const std::string& abi) {
  NetPluginOptions chosen = read_options();
  if (!abi.empty()) {
    chosen.load.abi = abi;
  }
  PLEXUS_TRY(plugin, load_net_plugin(chosen, name));
  PLEXUS_TRY(library, Library::load(plugin->path()));
  const NetDescriptor& descriptor = plugin->descriptor();
  fmt::print("file     {}\n", plugin->path().string());
  fmt::print("plugin   {}\n", describe_plugin(descriptor));
  fmt::print("entries  {}\n", fmt::join(find_plugin_entries(library), ", "));
  fmt::print("chosen   {}\n", descriptor.entry);
  NetContextOptions options;
  options.log = [](NetLogLevel level, std::string_view line) {
    if (level == NetLogLevel::kWarn) {
      fmt::print(stderr, "{}\n", line);
    }
  };
  PLEXUS_TRY(context, NetContext::create(plugin, options));
  fmt::print("devices  {}\n", context.device_count());
  for (uint32_t device = 0; device < context.device_count(); ++device) {
    print_device(device, context.properties(device));
  }
  return print_collnet(library);  // some libraries have both
}

int run_info(const std::string& name, const std::string& abi) {
  auto printed = print_other_kind(name, abi);
  if (printed && !printed.value()) {
    const Result<void> net = print_info(name, abi);
    return net ? kExitOk : report_error(net.error(), kExitWrong);
  }
  return printed ? kExitOk : report_error(printed.error(), kExitWrong);
}

}  // namespace

Command add_plugin_command(CLI::App& program) {
  CLI::App* app =
      program.add_subcommand("plugin", "List, inspect, check, measure and certify plugins");
  app->require_subcommand(1);
  const CLI::App* list =
      app->add_subcommand("list",
                          "The search path, and the net and collnet plugins and vendors' libraries "
                          "in it");
  CLI::App* info =
      app->add_subcommand("info", "A plugin's entries, ABI, devices and their properties");
  const auto name = std::make_shared<std::string>();
  info->add_option("LIB", *name, "a file, or a name such as net-socket")->required()->type_name("");
  const auto abi = std::make_shared<std::string>();
  info->add_option("--abi", *abi,
                   "the ABI to inspect: native, or a version of NCCL's such as v8 (default: the "
                   "best it has)")
      ->type_name("VALUE");
  std::vector<Command> others = add_plugin_check_commands(*app);
  for (Command& command : add_plugin_certify_commands(*app)) {
    others.push_back(std::move(command));
  }
  return {app, [list, name, abi, others] {
            for (const Command& other : others) {
              if (other.app->parsed()) {
                return other.run();
              }
            }
            return list->parsed() ? run_list() : run_info(*name, *abi);
          }};
}

}  // namespace plexus
