// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/plugin_kinds.hpp"

#include <algorithm>
#include <cstdlib>
#include <set>
#include <string_view>
#include <system_error>

#include <fmt/core.h>
#include <fmt/ranges.h>

#include "plugin-api/plexus_tuner.h"

#include "core/base/text.hpp"
#include "core/plugin/collnet_plugin.hpp"
#include "core/plugin/collnet_registry.hpp"
#include "core/plugin/library_search.hpp"
#include "tools/cli/plugin_check.hpp"
#include "tools/conformance/elf_file.hpp"

namespace plexus {
namespace {

namespace fs = std::filesystem;

bool has_any(const std::vector<std::string>& entries, std::string_view stem) {
  return std::any_of(entries.begin(), entries.end(),
                     [&](const std::string& entry) { return entry.rfind(stem, 0) == 0; });
}

void print_head(const Library& library,
                const std::string& plugin,
                const std::vector<std::string>& entries,
                const std::string& chosen) {
  fmt::print("file     {}\n", library.path().string());
  fmt::print("plugin   {}\n", plugin);
  fmt::print("entries  {}\n", fmt::join(entries, ", "));
  fmt::print("chosen   {}\n", chosen);
}

const plexus_plugin_t* ask_native(const Library& library) {
  using Query = const plexus_plugin_t*(uint32_t);
  Query* const query = library.find_function<Query>("plexus_plugin_query");
  const plexus_plugin_t* const plugin = query == nullptr ? nullptr : query(PLEXUS_HOST_ABI);
  return plugin == nullptr || plugin->magic != PLEXUS_PLUGIN_MAGIC ? nullptr : plugin;
}

/// The plugin's name, which is the first member of all of NCCL's tables.
std::string name_in_table(const Library& library, const std::string& entry) {
  const auto object = library.find_object(entry.c_str());
  const char* const name =
      object.has_value() ? *static_cast<const char* const*>(object->address) : nullptr;
  return name == nullptr ? "unnamed" : name;
}

/// The newest entry of the stem, or that of version `abi`.
Result<std::string> choose_entry(const std::vector<std::string>& entries,
                                 const std::string& stem,
                                 const std::string& abi) {
  const std::string wanted = abi.empty() ? stem : fmt::format("{}_{}", stem, abi);
  const auto found = std::find_if(entries.begin(), entries.end(), [&](const std::string& entry) {
    return abi.empty() ? entry.starts_with(wanted) : entry == wanted;
  });
  if (found == entries.end()) {
    return fail(Code::kInvalidUsage, "it has no {}; it has {}", wanted, fmt::join(entries, ", "));
  }
  return *found;
}

/// Folders where the dynamic loader looks for a bare name, from the environment and by convention.
std::vector<fs::path> loader_folders() {
  std::vector<fs::path> folders;
  const char* const path = std::getenv("LD_LIBRARY_PATH");  // NOLINT(concurrency-mt-unsafe)
  for (const std::string_view folder : split_list(path == nullptr ? "" : path, ':')) {
    folders.emplace_back(folder);
  }
  for (const char* const folder :
       {"/usr/local/lib", "/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib"}) {
    folders.emplace_back(folder);
  }
  return folders;
}

/// Whether NCCL looks for a file of this name, for any kind of plugin.
bool is_vendor_name(const std::string& file) {
  for (const std::string_view kind : {"net", "tuner", "profiler", "env", "gin", "rma"}) {
    const std::string stem = fmt::format("libnccl-{}", kind);
    const bool goes_on =
        file.size() > stem.size() && (file[stem.size()] == '.' || file[stem.size()] == '-');
    if (file.starts_with(stem) && goes_on && file.ends_with(".so")) {
      return true;
    }
  }
  return false;
}

/// "ncclNetPlugin_v12, ncclNetPlugin_v11": the tables that the file exports.
std::string describe_tables(const fs::path& file) {
  if (const auto complete = check_elf_file(file); complete.has_error()) {
    return fmt::format("unusable: {}", complete.error().message());
  }
  const auto shown = conformance::read_elf_file(file);
  if (shown.has_error()) {
    return fmt::format("unusable: {}", shown.error().message());
  }
  std::vector<std::string> tables;
  for (const conformance::ElfSymbol& symbol : shown.value().exported) {
    if (conformance::is_plugin_entry(symbol.name)) {
      tables.push_back(symbol.name);
    }
  }
  std::sort(tables.begin(), tables.end());
  return tables.empty() ? "has no plugin table" : fmt::format("{}", fmt::join(tables, ", "));
}

std::string describe_reductions(const CollnetContext& context, int32_t op) {
  constexpr const char* kTypes[] = {"int8",    "uint8",    "int32",      "uint32",
                                    "int64",   "uint64",   "float16",    "float32",
                                    "float64", "bfloat16", "float8e4m3", "float8e5m2"};
  std::vector<const char*> types;
  for (int32_t type = PLEXUS_TYPE_INT8; type <= PLEXUS_TYPE_FLOAT8E5M2; ++type) {
    const auto supported = context.supports(type, op);
    if (supported && supported.value()) {
      types.push_back(kTypes[type]);
    }
  }
  return types.empty() ? "nothing" : fmt::format("{}", fmt::join(types, ", "));
}

}  // namespace

std::vector<std::string> find_plugin_entries(const Library& library) {
  struct Family {
    const char* stem;
    int first;
    int last;
  };
  constexpr Family kFamilies[] = {{"ncclNetPlugin", 2, 13},  {"ncclCollNetPlugin", 2, 13},
                                  {"ncclTunerPlugin", 1, 7}, {"ncclProfiler", 1, 7},
                                  {"ncclEnvPlugin", 1, 3},   {"ncclGinPlugin", 11, 14},
                                  {"ncclRmaPlugin", 13, 15}};
  std::vector<std::string> found;
  for (const char* const query : {"plexus_plugin_query", "plexus_collnet_query"}) {
    if (library.has_symbol(query)) {
      found.emplace_back(query);
    }
  }
  for (const Family& family : kFamilies) {
    for (int version = family.last; version >= family.first; --version) {
      const std::string name = fmt::format("{}_v{}", family.stem, version);
      if (library.has_symbol(name.c_str())) {
        found.push_back(name);
      }
    }
  }
  return found;
}

std::string describe_memory(uint32_t mask) {
  std::vector<const char*> kinds;
  if ((mask & PLEXUS_MEMORY_HOST) != 0) {
    kinds.push_back("host");
  }
  if ((mask & PLEXUS_MEMORY_CUDA) != 0) {
    kinds.push_back("cuda");
  }
  if ((mask & PLEXUS_MEMORY_DMABUF) != 0) {
    kinds.push_back("dmabuf");
  }
  return fmt::format("{}", fmt::join(kinds, ", "));
}

Result<void> print_collnet(const Library& library) {
  PLEXUS_TRY(plugin, load_collnet_plugin(library));
  if (plugin == nullptr) {
    return ok();
  }
  PLEXUS_TRY(context, CollnetContext::create(plugin, 0));
  fmt::print("collnet  {} ({})\n", plugin->name, plugin->version);
  uint32_t number = 0;
  for (const plexus_collnet_properties_t& device : context.devices()) {
    fmt::print("collnet device {}: {}\n", number++, device.name);
    fmt::print("  speed               {}\n",
               device.speed_mbit_per_s == PLEXUS_UNKNOWN_U32
                   ? "unknown"
                   : fmt::format("{} Mbit/s", device.speed_mbit_per_s));
    fmt::print("  memory              {}\n", describe_memory(device.pointer_support));
    fmt::print("  longest reduction   {} B\n", device.message_bytes_max);
    fmt::print("  requests            {} in flight per group\n", device.requests_max);
  }
  constexpr const char* kOps[] = {"sum", "prod", "max", "min"};
  for (int32_t op = PLEXUS_REDUCE_SUM; op <= PLEXUS_REDUCE_MIN; ++op) {
    fmt::print("reduces  {:<4} {}\n", kOps[op], describe_reductions(context, op));
  }
  return ok();
}

Result<bool> print_other_kind(const std::string& name, const std::string& abi) {
  const auto file = find_plugin_file(name);
  if (!file) {
    return false;  // a net plugin may be anywhere the dynamic loader looks
  }
  const auto library = Library::load(file.value());
  if (!library) {
    return false;  // the net plugin's loader reports the reason
  }
  const std::vector<std::string> entries = find_plugin_entries(library.value());
  const plexus_plugin_t* const native = ask_native(library.value());
  if (native != nullptr && native->kind == PLEXUS_KIND_TUNER) {
    print_head(library.value(),
               fmt::format("{} {} (plugin ABI {}.{}), a tuner", native->name, native->version,
                           native->abi_major, native->abi_minor),
               entries, "plexus_plugin_query");
    return true;
  }
  if (has_any(entries, "plexus_plugin_query") || has_any(entries, "ncclNetPlugin")) {
    return false;
  }
  for (const auto& [stem, kind] :
       {std::pair{"plexus_collnet_query", "a network that reduces"},
        std::pair{"ncclCollNetPlugin", "a network that reduces"},
        std::pair{"ncclTunerPlugin", "a tuner"}, std::pair{"ncclProfiler", "a profiler"},
        std::pair{"ncclEnvPlugin", "an env plugin"}, std::pair{"ncclGinPlugin", "a GIN plugin"},
        std::pair{"ncclRmaPlugin", "an RMA plugin"}}) {
    if (!has_any(entries, stem)) {
      continue;
    }
    PLEXUS_TRY(chosen, choose_entry(entries, stem, abi));
    const bool is_table = chosen.rfind("nccl", 0) == 0;
    print_head(
        library.value(),
        is_table ? fmt::format("{}, {}", name_in_table(library.value(), chosen), kind) : kind,
        entries, chosen);
    PLEXUS_TRY(print_collnet(library.value()));
    return true;
  }
  return false;
}

void list_vendor_libraries(const fs::path& own_folder, const std::string& folders) {
  std::vector<fs::path> searched = list_plugin_folders(own_folder, folders);
  for (const fs::path& folder : loader_folders()) {
    searched.push_back(folder);
  }
  std::set<fs::path> files;  // a folder may be listed twice
  for (const fs::path& folder : searched) {
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(folder, error)) {
      if (is_vendor_name(entry.path().filename().string())) {
        files.insert(entry.path());
      }
    }
  }
  for (const fs::path& file : files) {
    fmt::print("{:<16} {}, {}\n", file.filename().string(), describe_tables(file), file.string());
  }
}

void list_collnet_plugins(const fs::path& own_folder, const std::string& folders) {
  const std::vector<fs::path> searched = list_plugin_folders(own_folder, folders);
  constexpr std::string_view kPrefix = "libplexus-collnet-";
  constexpr std::string_view kSuffix = ".so";
  for (const fs::path& folder : searched) {
    std::vector<fs::path> files;
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(folder, error)) {
      const std::string file = entry.path().filename().string();
      if (file.starts_with(kPrefix) && file.ends_with(kSuffix)) {
        files.push_back(entry.path());
      }
    }
    std::sort(files.begin(), files.end());
    for (const fs::path& file : files) {
      const std::string stem = file.stem().string().substr(kPrefix.size());
      const auto library = Library::load(file);
      const auto plugin =
          library ? load_collnet_plugin(library.value())
                  : Result<std::shared_ptr<const CollnetPlugin>>(library.error().clone());
      const bool is_usable = plugin && plugin.value() != nullptr;
      fmt::print("collnet-{:<8} {}, {}\n", stem,
                 is_usable ? fmt::format("{} {}", plugin.value()->name, plugin.value()->version)
                 : plugin  ? "unusable: it has no collnet table"
                           : fmt::format("unusable: {}", plugin.error().message()),
                 file.string());
    }
  }
}

}  // namespace plexus
