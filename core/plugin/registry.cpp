// SPDX-License-Identifier: Apache-2.0
#include "core/plugin/registry.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <numeric>
#include <set>
#include <system_error>

#include <fmt/ranges.h>

#include "core/plugin/library.hpp"

namespace plexus {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kOwnPrefix = "libplexus-net-";
constexpr std::string_view kSuffix = ".so";

/// Plexus's own networks, best first: what a communicator tries when the user says nothing.
constexpr std::array<std::string_view, 1> kOwnPlugins = {"socket"};

/// A list longer than this is a mistake (NCCL's limit is 14 plugins of 255 characters).
constexpr size_t kListMax = 64;
constexpr size_t kNameMax = 4096;

std::string lower(std::string_view text) {
  std::string result(text);
  std::transform(result.begin(), result.end(), result.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return result;
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (true) {
    const size_t end = text.find(separator);
    if (const std::string_view part = text.substr(0, end); !part.empty()) {
      parts.push_back(part);
    }
    if (end == std::string_view::npos) {
      return parts;
    }
    text.remove_prefix(end + 1);
  }
}

bool is_path(std::string_view name) { return name.find('/') != std::string_view::npos; }
bool is_file_name(std::string_view name) { return name.ends_with(kSuffix); }

/// "socket" from "Socket", "net-socket", "libplexus-net-socket.so" or a path to it: what exclusions
/// and suggestions compare.
std::string short_name(std::string_view name) {
  std::string result = lower(fs::path(name).filename().string());
  for (const std::string_view prefix : {"libplexus-net-", "libplexus-", "libnccl-net-", "net-"}) {
    if (result.starts_with(prefix)) {
      result.erase(0, prefix.size());
      break;
    }
  }
  if (result.ends_with(kSuffix)) {
    result.erase(result.size() - kSuffix.size());
  }
  return result;
}

bool contains_name(const std::vector<std::string>& names, std::string_view name) {
  return std::any_of(names.begin(), names.end(), [&](const std::string& each) {
    return each == name || short_name(each) == short_name(name);
  });
}

std::vector<fs::path> search_folders(const NetPluginOptions& options) {
  std::vector<fs::path> folders;
  if (!options.own_folder.empty()) {
    folders.push_back(options.own_folder);
  }
  for (const std::string_view folder : split(options.folders, ':')) {
    folders.emplace_back(folder);
  }
  return folders;
}

/// Edits (insert, delete, replace a character) between two words.
size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i + 1;
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t replaced = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row[b.size()];
}

/// " Did you mean 'socket'?" when a plugin that exists has nearly this name, else nothing.
std::string suggest(const NetPluginOptions& options, std::string_view name) {
  constexpr size_t kNear = 2;  // a swapped pair of letters is two edits
  constexpr size_t kWordMax = 64;
  const std::string wanted = short_name(name);
  if (wanted.size() > kWordMax) {
    return {};
  }
  for (const std::string& known : list_net_plugins(options)) {
    if (known != wanted && known.size() > kNear && edit_distance(wanted, known) <= kNear) {
      return fmt::format(". Did you mean '{}'?", known);
    }
  }
  return {};
}

Error absent(const NetPluginOptions& options,
             std::string_view name,
             const std::vector<std::string>& files,
             const std::vector<fs::path>& folders) {
  std::vector<std::string> places;
  std::transform(folders.begin(), folders.end(), std::back_inserter(places),
                 [](const fs::path& folder) { return folder.string(); });
  places.emplace_back("the dynamic loader's paths (LD_LIBRARY_PATH)");
  return fail(Code::kInvalidUsage,
              "net plugin '{}' was not found: looked for {} in {}; put the file there, or name its "
              "folder in "
              "PLEXUS_PLUGIN_PATH{}",
              name, fmt::join(files, ", "), fmt::join(places, ", "), suggest(options, name));
}

Error unusable(std::string_view name, const fs::path& file, Error reason) {
  return std::move(reason).with_context(
      fmt::format("net plugin '{}' ({}) cannot be used", name, file.string()));
}

/// dlopen's words for "no such file", as opposed to a library whose own needs are not met.
bool is_absent(const Error& error, std::string_view file) {
  return error.message().starts_with(fmt::format("{}: cannot open shared object file", file));
}

Result<std::shared_ptr<const NetPlugin>> load_path(std::string_view name, const fs::path& file) {
  auto plugin = NetPlugin::load(file);
  if (plugin.has_error()) {
    return unusable(name, file, std::move(plugin).error());
  }
  return plugin;
}

/// What the communicator tries, in order; never empty without an error.
Result<std::vector<std::string>> choose_candidates(const NetPluginOptions& options) {
  PLEXUS_TRY(list, parse_net_plugin_list(options.plugins));
  std::vector<std::string> candidates = list.named;
  if (candidates.empty() && !options.network.empty()) {
    candidates.push_back(options.network);
  } else if (candidates.empty()) {
    candidates.assign(kOwnPlugins.begin(), kOwnPlugins.end());
  }
  std::erase_if(candidates,
                [&](const std::string& name) { return contains_name(list.excluded, name); });
  if (candidates.empty()) {
    return fail(
        Code::kInvalidUsage,
        "NCCL_NET_PLUGIN={} leaves no net plugin to use; remove an exclusion or name a plugin",
        options.plugins);
  }
  return candidates;
}

std::string describe_devices(const NetContext& context) {
  constexpr uint32_t kShown = 8;
  std::vector<std::string> devices;
  for (uint32_t device = 0; device < std::min(context.device_count(), kShown); ++device) {
    const NetProperties& properties = context.properties(device);
    const auto speed = properties.speed_mbit_per_s;
    devices.push_back(speed ? fmt::format("{} ({} Mbit/s)", properties.name, *speed)
                            : properties.name);
  }
  if (context.device_count() > kShown) {
    devices.push_back(fmt::format("{} more", context.device_count() - kShown));
  }
  return fmt::format("{}", fmt::join(devices, ", "));
}

void log_choice(const NetContext& context, const NetLog& log) {
  if (!log) {
    return;
  }
  const NetDescriptor& descriptor = context.plugin().descriptor();
  log(NetLogLevel::kInfo,
      fmt::format("using network {} {} (plugin ABI {}.{}) with {} device{}: {}; found at {}",
                  descriptor.name, descriptor.version, descriptor.abi_major, descriptor.abi_minor,
                  context.device_count(), context.device_count() == 1 ? "" : "s",
                  describe_devices(context), context.plugin().path().string()));
}

Result<NetContext> open_candidate(const std::shared_ptr<const NetPlugin>& plugin,
                                  const NetContextOptions& options) {
  PLEXUS_TRY(context, NetContext::create(plugin, options));
  if (context.device_count() == 0) {
    return fail(Code::kSystemError, "net plugin {} ({}) finds no device on this host",
                plugin->descriptor().name, plugin->path().string());
  }
  return std::move(context);
}

}  // namespace

fs::path NetPluginOptions::find_own_plugin_folder() { return find_own_folder(); }

Result<NetPluginList> parse_net_plugin_list(std::string_view text) {
  NetPluginList list;
  const bool excludes_all = text.starts_with('^');
  const std::vector<std::string_view> entries = split(text, ',');
  if (entries.size() > kListMax) {
    return fail(Code::kInvalidUsage, "NCCL_NET_PLUGIN lists {} plugins, at most {} are possible",
                entries.size(), kListMax);
  }
  for (const std::string_view entry : entries) {
    const bool excludes = excludes_all || entry.starts_with('^');
    const std::string_view name = entry.substr(entry.starts_with('^') ? 1 : 0);
    if (name.empty() || name.size() > kNameMax) {
      return fail(Code::kInvalidUsage,
                  "NCCL_NET_PLUGIN={} has an entry without a name or longer than {} characters",
                  text.substr(0, kNameMax), kNameMax);
    }
    if (lower(name) == "none") {
      continue;
    }
    (excludes ? list.excluded : list.named).emplace_back(name);
  }
  return list;
}

std::vector<std::string> net_plugin_file_names(std::string_view name) {
  if (is_path(name) || is_file_name(name)) {
    return {std::string(name)};
  }
  const std::string word = short_name(name);
  std::vector<std::string> files = {fmt::format("{}{}{}", kOwnPrefix, word, kSuffix)};
  if (std::string exact = fmt::format("{}{}{}", kOwnPrefix, name, kSuffix);
      exact != files.front() && !name.starts_with("net-")) {
    files.push_back(std::move(exact));
  }
  files.push_back(fmt::format("libnccl-net-{}{}", name, kSuffix));
  return files;
}

Result<std::shared_ptr<const NetPlugin>> load_net_plugin(const NetPluginOptions& options,
                                                         std::string_view name) {
  if (is_path(name)) {
    return load_path(name, fs::path(name));
  }
  const std::vector<std::string> files = net_plugin_file_names(name);
  const std::vector<fs::path> folders = search_folders(options);
  for (const fs::path& folder : folders) {
    for (const std::string& file : files) {
      std::error_code ignored;
      if (fs::exists(folder / file, ignored)) {
        return load_path(name, fs::absolute(folder / file, ignored));
      }
    }
  }
  for (const std::string& file : files) {
    auto plugin = NetPlugin::load(file);
    if (plugin.has_value()) {
      return plugin;
    }
    if (!is_absent(plugin.error(), file)) {
      return unusable(name, file, std::move(plugin).error());
    }
  }
  return absent(options, name, files, folders);
}

std::vector<std::string> list_net_plugins(const NetPluginOptions& options) {
  std::set<std::string> names;
  for (const fs::path& folder : search_folders(options)) {
    std::error_code error;
    for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
         entry.increment(error)) {
      const std::string file = entry->path().filename().string();
      if (file.starts_with(kOwnPrefix) && file.ends_with(kSuffix)) {
        names.insert(short_name(file));
      }
    }
  }
  return {names.begin(), names.end()};
}

Result<NetContext> open_net(const NetPluginOptions& options, const NetContextOptions& context) {
  PLEXUS_TRY(candidates, choose_candidates(options));
  std::vector<std::string> passed_over;
  for (const std::string& name : candidates) {
    // What is in the list was named by the user, or is ours: it loads, or the communicator fails.
    PLEXUS_TRY(plugin, load_net_plugin(options, name));
    if (!options.network.empty() && lower(plugin->descriptor().name) != lower(options.network)) {
      passed_over.push_back(plugin->descriptor().name);
      continue;
    }
    PLEXUS_TRY(opened, open_candidate(plugin, context));
    log_choice(opened, context.log);
    return std::move(opened);
  }
  return fail(Code::kInvalidUsage,
              "NCCL_NET={} asks for a network that no plugin of NCCL_NET_PLUGIN={} has (they have "
              "{}); correct one "
              "of the two settings",
              options.network, options.plugins, fmt::join(passed_over, ", "));
}

}  // namespace plexus
