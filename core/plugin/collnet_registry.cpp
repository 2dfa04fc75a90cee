// SPDX-License-Identifier: Apache-2.0
#include "core/plugin/collnet_registry.hpp"

#include <optional>
#include <string_view>
#include <system_error>
#include <vector>

#include <fmt/ranges.h>

#include "core/plugin/library_search.hpp"
#include "core/plugin/nccl_collnet/adapter.hpp"
#include "core/plugin/registry.hpp"

namespace plexus {
namespace {

namespace fs = std::filesystem;

using Loaded = std::shared_ptr<const CollnetPlugin>;

/// Loads the first of `names` from Plexus's folders, or else by the dynamic loader's rules;
/// nullopt: not found. An Error: a file exists and cannot be loaded.
Result<std::optional<Library>> find_any(const CollnetPluginOptions& options,
                                        const std::vector<std::string>& names) {
  const std::vector<fs::path> folders = list_plugin_folders(options.own_folder, options.folders);
  for (const std::string& file : names) {
    for (const fs::path& folder : folders) {
      // A path with a '/' is used as it is.
      const bool is_path = file.find('/') != std::string::npos;
      const fs::path path = is_path ? fs::path(file) : folder / file;
      std::error_code ignored;
      if ((is_path && fs::exists(path, ignored)) || is_library_at(path)) {
        auto library = Library::load(path);
        if (library.has_error()) {
          return std::move(library).error().with_context(path.string());
        }
        return std::optional(std::move(library).value());
      }
    }
  }
  for (const std::string& file : names) {
    if (auto library = Library::load(file); library.has_value()) {
      return std::optional(std::move(library).value());
    }
  }
  return std::optional<Library>();
}

Result<Loaded> load_shared(const CollnetPluginOptions& options, const Library& library) {
  return options.cache == nullptr ? load_collnet_plugin(library) : options.cache->load(library);
}

Result<Loaded> load_named(const CollnetPluginOptions& options) {
  const std::string& name = options.plugin;
  const std::vector<std::string> names = {"libplexus-" + name + ".so",
                                          "libplexus-collnet-" + name + ".so",
                                          "libnccl-net-" + name + ".so", name};
  PLEXUS_TRY(library, find_any(options, names));
  if (!library.has_value()) {
    return fail(Code::kInvalidUsage,
                "collnet plugin {} was not found: looked for {} beside libplexus.so, in the folder "
                "plexus there, in PLEXUS_PLUGIN_PATH and where the dynamic loader looks",
                name, fmt::join(names, ", "));
  }
  auto loaded = load_shared(options, *library);
  if (loaded.has_error()) {
    return fail(Code::kInvalidUsage, "collnet plugin '{}' ({}) cannot be used: {}", name,
                library->path().string(), loaded.error().message());
  }
  if (loaded.value() == nullptr) {
    return fail(Code::kInvalidUsage,
                "{} is not a collnet plugin: it exports neither plexus_collnet_query nor "
                "ncclCollNetPlugin_v{} to v{}",
                library->path().string(), nccl_collnet::kVersionLeast, nccl_collnet::kVersionMost);
  }
  return loaded;
}

}  // namespace

Result<Loaded> load_collnet_plugin(const Library& library) {
  using Query = const plexus_collnet_plugin_t*(uint32_t);
  if (Query* const query = library.find_function<Query>("plexus_collnet_query"); query != nullptr) {
    PLEXUS_TRY(checked, check_collnet_plugin(query(PLEXUS_HOST_ABI)));
    checked.path = library.path();
    return std::make_shared<const CollnetPlugin>(std::move(checked));
  }
  return nccl_collnet::adapt(library);
}

Result<Loaded> CollnetPluginCache::load(const Library& library) {
  const std::lock_guard lock(mutex_);
  if (const auto known = plugins_.find(library.path()); known != plugins_.end()) {
    return known->second;
  }
  PLEXUS_TRY(loaded, load_collnet_plugin(library));
  plugins_[library.path()] = loaded;
  return std::move(loaded);
}

Result<Loaded> find_collnet_plugin(const CollnetPluginOptions& options) {
  if (options.plugin == "none") {
    return Loaded();
  }
  if (!options.plugin.empty()) {
    auto loaded = load_named(options);
    if (loaded.has_error()) {
      return std::move(loaded).error().with_context(
          fmt::format("PLEXUS_COLLNET_PLUGIN={}", options.plugin));
    }
    return loaded;
  }
  PLEXUS_TRY(list, parse_net_plugin_list(options.net_plugins));
  if (list.named.empty() && !list.has_none) {
    list.named.push_back({.name = "libnccl-net.so"});
  }
  for (const NetPluginEntry& entry : list.named) {
    auto library = find_any(options, net_plugin_file_names(entry.name));
    if (library.has_error() || !library.value().has_value()) {
      continue;  // opening the network reports the error
    }
    auto loaded = load_shared(options, *library.value());
    if (loaded.has_error()) {
      return std::move(loaded).error().with_context(
          fmt::format("collnet of NCCL_NET_PLUGIN={} ({})", options.net_plugins,
                      library.value()->path().string()));
    }
    if (loaded.value() != nullptr) {
      return loaded;
    }
  }
  return Loaded();
}

}  // namespace plexus
