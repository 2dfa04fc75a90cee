// SPDX-License-Identifier: Apache-2.0
#include "core/plugin/registry.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <numeric>
#include <optional>
#include <set>
#include <span>
#include <system_error>

#include <fmt/ranges.h>

#include "core/base/text.hpp"
#include "core/plugin/library.hpp"
#include "core/plugin/library_search.hpp"

namespace plexus {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kOwnPrefix = "libplexus-net-";
constexpr std::string_view kOwnName = "net-";  // prefix of the names of Plexus's own plugins
constexpr std::string_view kSuffix = ".so";
constexpr std::string_view kJail = "net-jail";  // runs another plugin in a process of its own
/// NCCL's default when NCCL_NET_PLUGIN is not set; vendors install their plugin under this name.
constexpr std::string_view kDefaultNet = "libnccl-net.so";
/// RCCL's, where there is no other.
constexpr std::string_view kDefaultNetOfRccl = "librccl-net.so";

/// Plexus's own networks, best first, which a communicator tries without a setting. Only the last
/// one works on every host.
constexpr std::array<std::string_view, 2> kOwnPlugins = {"ib", "socket"};

/// A list longer than this is a mistake (NCCL's limit is 14 plugins of 255 characters).
constexpr size_t kListMax = 64;
constexpr size_t kNameMax = 4096;
constexpr uint32_t kAbiMinorOfSettings = 2;  // plexus_net_config_t::setting

bool is_word(std::string_view text) {
  constexpr size_t kWordMax = 63;
  return !text.empty() && text.size() <= kWordMax &&
         std::all_of(text.begin(), text.end(), [](unsigned char c) {
           return std::isalnum(c) != 0 || c == '_' || c == '.' || c == '-';
         });
}

bool is_path(std::string_view name) { return name.find('/') != std::string_view::npos; }
/// "libmine.so" and "libmine.so.1".
bool is_file_name(std::string_view name) {
  return name.ends_with(kSuffix) || name.find(".so.") != std::string_view::npos;
}

/// "socket" from "Socket", "net-socket", "libplexus-net-socket.so" or a path to it. Exclusions and
/// suggestions compare these.
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
  return list_plugin_folders(options.own_folder, options.folders);
}

/// Edit distance (insert, delete, replace) between two words.
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

/// " Did you mean 'socket'?" when an existing plugin has a similar name, else "".
std::string suggest(const NetPluginOptions& options, std::string_view name) {
  constexpr size_t kNear = 2;  // two swapped letters are two edits
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

Error unusable(std::string_view name, const fs::path& file, const Error& reason) {
  return fail(Code::kInvalidUsage, "net plugin '{}' ({}) cannot be used: {}{}", name, file.string(),
              reason.message(), remedy_of(reason.message()));
}

using LoadedPlugin = std::shared_ptr<const NetPlugin>;

Result<LoadedPlugin> load_file(const NetPluginOptions& options, const fs::path& file) {
  PLEXUS_TRY(plugin, NetPlugin::load(file, options.load));
  return options.cache == nullptr ? std::move(plugin) : options.cache->intern(std::move(plugin));
}

Result<LoadedPlugin> load_path(const NetPluginOptions& options,
                               std::string_view name,
                               const fs::path& file) {
  auto plugin = load_file(options, file);
  if (plugin.has_error()) {
    return unusable(name, file, plugin.error());
  }
  return plugin;
}

/// Loads the plugin from the first existing one of `files`; null: none exists. The name is no path.
Result<LoadedPlugin> find_in_files(const NetPluginOptions& options,
                                   std::string_view name,
                                   std::span<const std::string> files) {
  for (const fs::path& folder : search_folders(options)) {
    for (const std::string& file : files) {
      std::error_code ignored;
      if (is_library_at(folder / file)) {
        return load_path(options, name, fs::absolute(folder / file, ignored));
      }
    }
  }
  for (const std::string& file : files) {
    auto plugin = load_file(options, file);
    if (plugin.has_value()) {
      return plugin;
    }
    if (!is_absent(plugin.error(), file)) {
      return unusable(name, file, plugin.error());
    }
  }
  return LoadedPlugin();
}

bool is_own_file(std::string_view file) { return file.starts_with(kOwnPrefix); }

/// The plugin `name`, which is no path; null: no such file. All places are searched for NCCL's file
/// names before Plexus's, so that the meaning of a name does not depend on the folders.
Result<LoadedPlugin> find_plugin(const NetPluginOptions& options, std::string_view name) {
  const std::vector<std::string> files = net_plugin_file_names(name);
  const auto second = std::find_if(files.begin(), files.end(), [&](const std::string& file) {
    return is_own_file(file) != is_own_file(files.front());
  });
  const std::span all(files);
  const auto size = static_cast<size_t>(second - files.begin());
  PLEXUS_TRY(plugin, find_in_files(options, name, all.first(size)));
  if (plugin != nullptr || size == all.size()) {
    return std::move(plugin);
  }
  return find_in_files(options, name, all.subspan(size));
}

/// Says that NCCL's file is used although Plexus has one of that name; "": not the case.
std::string explain_file(const NetPluginOptions& options,
                         std::string_view name,
                         const NetPlugin& plugin) {
  const std::string taken = plugin.path().filename().string();
  const std::string ours = fmt::format("{}{}{}", kOwnPrefix, short_name(name), kSuffix);
  const auto folders = search_folders(options);
  std::error_code ignored;
  const bool is_there = std::any_of(folders.begin(), folders.end(), [&](const fs::path& folder) {
    return fs::is_regular_file(folder / ours, ignored);
  });
  if (is_path(name) || is_file_name(name) || is_own_file(taken) || !is_there) {
    return {};
  }
  return fmt::format("{} (NCCL's {} takes precedence for the name {}; net-{} names this one)", ours,
                     taken, name, short_name(name));
}

/// A plugin that a communicator tries.
struct Candidate {
  NetPluginEntry entry;
  // named by the user, or the last of Plexus's own: it must work, or its failure is reported
  bool is_required;
};

/// A name that NCCL's file does not match.
std::string own_name(std::string_view network) { return fmt::format("{}{}", kOwnName, network); }

/// NCCL_NET names networks instead of files: the matching plugin of Plexus, if any.
std::string plugin_of_network(const NetPluginOptions& options, std::string_view network) {
  const std::vector<std::string> own = list_net_plugins(options);
  const bool is_own = std::find(own.begin(), own.end(), lower(network)) != own.end();
  return is_own ? own_name(lower(network)) : std::string(network);
}

/// Candidates in order; at least one unless an Error. Appends to `notes` what is left out.
Result<std::vector<Candidate>> choose_candidates(const NetPluginOptions& options,
                                                 std::vector<std::string>& notes) {
  PLEXUS_TRY(list, parse_net_plugin_list(options.plugins));
  std::vector<Candidate> candidates;
  for (const NetPluginEntry& entry : list.named) {
    candidates.push_back({entry, true});
  }
  if (candidates.empty() && !list.has_none) {
    candidates.push_back({{std::string(kDefaultNet)}, false});
  }
  if (list.named.empty() && !options.network.empty()) {
    for (const std::string_view network : split_list(options.network, ',')) {
      candidates.push_back({{plugin_of_network(options, network)}, true});
    }
  } else if (list.named.empty() || options.all || options.falls_back) {
    for (const std::string_view own : kOwnPlugins) {
      const bool is_named =
          std::any_of(list.named.begin(), list.named.end(), [&](const NetPluginEntry& each) {
            return short_name(each.name) == own || (each.name == kJail && each.label == own);
          });
      if (!is_named) {
        const bool is_last =
            own == kOwnPlugins.back() || contains_name(list.excluded, kOwnPlugins.back());
        candidates.push_back({{own_name(own)}, list.named.empty() && is_last});
      }
    }
  }
  std::erase_if(candidates, [&](const Candidate& each) {
    const bool is_excluded = contains_name(list.excluded, each.entry.name);
    if (is_excluded) {
      notes.push_back(fmt::format("{} (NCCL_NET_PLUGIN excludes it)", each.entry.name));
    }
    return is_excluded;
  });
  const bool has_required = std::any_of(candidates.begin(), candidates.end(),
                                        [](const Candidate& each) { return each.is_required; });
  if (!has_required && !list.excluded.empty()) {
    return fail(
        Code::kInvalidUsage,
        "NCCL_NET_PLUGIN={} excludes every net plugin; remove an exclusion or name a plugin",
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

std::string describe_net(const OpenNet& net) {
  const NetContext& context = net.context;
  const std::string plugin = describe_plugin(context.plugin().descriptor());
  const bool is_label = lower(net.name) != lower(context.plugin().network_name());
  return fmt::format("network {}{}{} with {} device{}: {}; found at {}", is_label ? net.name : "",
                     is_label ? " = " : "", plugin, context.device_count(),
                     context.device_count() == 1 ? "" : "s", describe_devices(context),
                     context.plugin().path().string());
}

void log_choice(const std::vector<OpenNet>& nets,
                const std::vector<std::string>& notes,
                const NetLog& log) {
  if (!log) {
    return;
  }
  std::vector<std::string> used;
  std::transform(nets.begin(), nets.end(), std::back_inserter(used), describe_net);
  log(NetLogLevel::kChoice,
      fmt::format("using {}{}{}", fmt::join(used, "; and "),
                  notes.empty() ? "" : "; not used: ", fmt::join(notes, ", ")));
}

/// Looks settings up in the entry first, then in `others`.
NetSettings add_settings(const NetPluginEntry& entry, const NetSettings& others) {
  return [own = entry.settings, others](std::string_view name) -> std::optional<std::string> {
    const auto at = std::find_if(own.begin(), own.end(),
                                 [&](const auto& setting) { return setting.first == name; });
    if (at != own.end()) {
      return at->second;
    }
    return others ? others(name) : std::nullopt;
  };
}

/// A user who asks for encryption must not get a network that knows nothing of it.
Result<void> check_security(const NetContext& context, const NetSettings& settings) {
  constexpr std::string_view kName = "PLEXUS_NET_SECURITY";
  if (!settings || settings(kName) != "tls" || context.has_read(kName)) {
    return ok();
  }
  return fail(Code::kInvalidUsage,
              "PLEXUS_NET_SECURITY=tls, but net plugin {} ({}) does not take that setting, so that "
              "it may send in clear: use net-socket (NCCL_NET=Socket), or auth where nobody else "
              "reaches the network",
              context.plugin().descriptor().name, context.plugin().path().string());
}

Result<NetContext> open_candidate(const std::shared_ptr<const NetPlugin>& plugin,
                                  const NetPluginEntry& entry,
                                  NetContextOptions options) {
  const NetDescriptor& descriptor = plugin->descriptor();
  if (!entry.settings.empty()) {
    if (descriptor.abi_major < 1 || descriptor.abi_minor < kAbiMinorOfSettings) {
      return fail(Code::kInvalidUsage,
                  "net plugin {} ({}) does not support settings in NCCL_NET_PLUGIN: remove what "
                  "follows the '?', and set it in the environment",
                  describe_plugin(descriptor), plugin->path().string());
    }
    options.settings = add_settings(entry, options.settings);
  }
  const NetSettings settings = options.settings;
  PLEXUS_TRY(context, NetContext::create(plugin, std::move(options)));
  PLEXUS_TRY(check_security(context, settings));
  if (context.device_count() == 0) {
    return fail(Code::kSystemError,
                "net plugin {} ({}) found no device on this host; check its settings and the "
                "host's network cards, or name another plugin in NCCL_NET_PLUGIN",
                plugin->descriptor().name, plugin->path().string());
  }
  return std::move(context);
}

/// Whether NCCL_NET allows a network of this name.
bool is_wanted(const NetPluginOptions& options, const std::string& name) {
  const std::vector<std::string_view> wanted = split_list(options.network, ',');
  return wanted.empty() || std::any_of(wanted.begin(), wanted.end(), [&](std::string_view each) {
           return lower(each) == lower(name);
         });
}

/// An open network; nullopt: the candidate is skipped, and `notes` says why.
Result<std::optional<OpenNet>> try_candidate(const NetPluginOptions& options,
                                             const Candidate& candidate,
                                             const NetContextOptions& context,
                                             std::vector<std::string>& notes) {
  const auto pass_over = [&](Error why) -> Result<std::optional<OpenNet>> {
    if (candidate.is_required) {
      return why;
    }
    notes.push_back(fmt::format("{} ({})", candidate.entry.name, why.message()));
    return std::nullopt;
  };
  auto loaded = candidate.is_required ? load_net_plugin(options, candidate.entry.name)
                                      : find_plugin(options, candidate.entry.name);
  if (loaded.has_error()) {
    return pass_over(std::move(loaded).error());
  }
  const LoadedPlugin& plugin = loaded.value();
  if (plugin == nullptr) {
    return std::nullopt;  // not asked for and not installed: no note
  }
  if (!is_wanted(options, plugin->network_name()) && !is_wanted(options, candidate.entry.label)) {
    notes.push_back(fmt::format("{} is network {}", candidate.entry.name, plugin->network_name()));
    return std::nullopt;
  }
  auto opened = open_candidate(plugin, candidate.entry, context);
  if (opened.has_error()) {
    return pass_over(std::move(opened).error());
  }
  if (std::string why = explain_file(options, candidate.entry.name, *plugin); !why.empty()) {
    notes.push_back(std::move(why));
  }
  // Some plugins change their name during init, so it is read again.
  const std::string& label = candidate.entry.label;
  return std::optional<OpenNet>(
      OpenNet{label.empty() ? plugin->network_name() : label, std::move(opened).value()});
  // The analyzer does not follow an Outcome into has_error().
}  // NOLINT(clang-analyzer-cplusplus.NewDeleteLeaks)

/// A named plugin that is unusable is reported, but is no error while others are left to try: not
/// every host has every network.
void note_failure(const Candidate& candidate,
                  const Error& why,
                  bool with_others,
                  const NetLog& log,
                  std::vector<std::string>& notes) {
  notes.push_back(fmt::format("{} ({})", candidate.entry.name, why.message()));
  if (log) {
    log(NetLogLevel::kWarn,
        with_others ? fmt::format("this host continues without one network: {}", why.message())
                    : fmt::format("{}; the next network is tried", why.message()));
  }
}

/// One error from all attempts, with the first one's code.
Error join_errors(std::vector<Error> errors) {
  if (errors.size() == 1) {
    return std::move(errors.front());
  }
  std::vector<std::string> texts;
  std::transform(errors.begin(), errors.end(), std::back_inserter(texts),
                 [](const Error& error) { return std::string(error.message()); });
  return fail(errors.front().code(), "no network can be used: {}", fmt::join(texts, "; and "));
}

/// Network names must be unique, because ranks find their common networks by name.
Result<void> check_name_is_new(const std::vector<OpenNet>& nets, const OpenNet& net) {
  const auto same = std::find_if(nets.begin(), nets.end(), [&](const OpenNet& each) {
    return lower(each.name) == lower(net.name);
  });
  if (same != nets.end()) {
    return fail(Code::kInvalidUsage,
                "{} and {} both provide the network {}: label them in NCCL_NET_PLUGIN, as in "
                "a=NAME,b=NAME, or leave one out",
                same->context.plugin().path().string(), net.context.plugin().path().string(),
                net.name);
  }
  return ok();
}

/// `isolate=1` is a setting of the list itself: net-jail, which runs the plugin in a process of its
/// own, takes its place. The network keeps its name.
Result<void> isolate(NetPluginEntry& entry) {
  const auto at = std::find_if(entry.settings.begin(), entry.settings.end(),
                               [](const auto& setting) { return setting.first == "isolate"; });
  if (at == entry.settings.end()) {
    return ok();
  }
  if (at->second != "0" && at->second != "1") {
    return fail(Code::kInvalidUsage, "isolate={} of {} in NCCL_NET_PLUGIN is not 0 or 1",
                at->second, entry.name);
  }
  if (at->second == "1") {
    const std::string name = short_name(entry.name);
    entry.label = !entry.label.empty() ? entry.label : is_word(name) ? name : "jailed";
    *at = {"PLEXUS_JAIL_NET", std::exchange(entry.name, std::string(kJail))};
  } else {
    entry.settings.erase(at);
  }
  return ok();
}

Result<NetPluginEntry> parse_entry(std::string_view text) {
  const size_t question = text.find('?');
  std::string_view name = text.substr(0, question);
  NetPluginEntry entry;
  if (const size_t equals = name.find('='); equals < name.find('/')) {
    entry.label = name.substr(0, equals);
    name.remove_prefix(equals + 1);
    if (!is_word(entry.label) || name.empty()) {
      return fail(Code::kInvalidUsage,
                  "invalid entry {} in NCCL_NET_PLUGIN: LABEL=NAME needs a name, and a label of "
                  "letters, digits, '_', '.' and '-'",
                  text);
    }
  }
  entry.name = name;
  if (question == std::string_view::npos) {
    return entry;
  }
  for (const std::string_view setting : split_list(text.substr(question + 1), '&')) {
    const size_t equals = setting.find('=');
    if (equals == std::string_view::npos || !is_word(setting.substr(0, equals))) {
      return fail(Code::kInvalidUsage,
                  "invalid entry {} in NCCL_NET_PLUGIN: expected SETTING=VALUE after '?', several "
                  "joined by '&'",
                  text);
    }
    std::string value(setting.substr(equals + 1));
    std::replace(value.begin(), value.end(), ';', ',');
    entry.settings.emplace_back(setting.substr(0, equals), std::move(value));
  }
  PLEXUS_TRY(isolate(entry));
  return entry;
}

}  // namespace

fs::path NetPluginOptions::find_own_plugin_folder() { return find_own_folder(); }

Result<NetPluginList> parse_net_plugin_list(std::string_view text) {
  NetPluginList list;
  const bool excludes_all = text.starts_with('^');
  const std::vector<std::string_view> entries = split_list(text, ',');
  if (entries.size() > kListMax) {
    return fail(Code::kInvalidUsage, "NCCL_NET_PLUGIN lists {} plugins, at most {} are supported",
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
      list.has_none = true;
      continue;
    }
    if (excludes) {
      list.excluded.emplace_back(name);
      continue;
    }
    PLEXUS_TRY(parsed, parse_entry(name));
    list.named.push_back(std::move(parsed));
  }
  return list;
}

std::vector<std::string> net_plugin_file_names(std::string_view name) {
  if (name == kDefaultNet) {
    return {std::string(kDefaultNet), std::string(kDefaultNetOfRccl)};
  }
  if (is_path(name) || is_file_name(name) || name == kStaticPlugin) {
    return {std::string(name)};
  }
  // A name means NCCL's file if that exists; "net-NAME" always means Plexus's.
  const bool is_ours = name.starts_with(kOwnName);
  const std::string word = short_name(name);
  std::vector<std::string> files;
  if (!is_ours) {
    files = {std::string(name), fmt::format("libnccl-net-{}{}", name, kSuffix),
             fmt::format("librccl-net-{}{}", name, kSuffix)};
  }
  files.push_back(fmt::format("{}{}{}", kOwnPrefix, word, kSuffix));
  if (std::string exact = fmt::format("{}{}{}", kOwnPrefix, name, kSuffix);
      exact != files.back() && !is_ours) {
    files.push_back(std::move(exact));
  }
  if (is_ours) {
    files.push_back(fmt::format("libnccl-net-{}{}", name, kSuffix));
  }
  return files;
}

std::shared_ptr<const NetPlugin> NetPluginCache::intern(std::shared_ptr<const NetPlugin> plugin) {
  const std::scoped_lock lock(mutex_);
  for (const auto& known : plugins_) {
    if (known->path() == plugin->path() &&
        known->descriptor().entry == plugin->descriptor().entry) {
      return known;
    }
  }
  plugins_.push_back(plugin);
  return plugin;
}

Result<std::shared_ptr<const NetPlugin>> load_net_plugin(const NetPluginOptions& options,
                                                         std::string_view name) {
  if (is_path(name)) {
    return load_path(options, name, fs::path(name));
  }
  PLEXUS_TRY(plugin, find_plugin(options, name));
  if (plugin == nullptr) {
    return absent(options, name, net_plugin_file_names(name), search_folders(options));
  }
  return std::move(plugin);
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

Result<std::vector<OpenNet>> open_nets(const NetPluginOptions& options,
                                       const NetContextOptions& context) {
  std::vector<std::string> notes;
  PLEXUS_TRY(candidates, choose_candidates(options, notes));
  const size_t excluded = notes.size();
  std::vector<OpenNet> nets;
  std::vector<Error> errors;
  for (const Candidate& candidate : candidates) {
    if (!nets.empty() && !options.all) {
      if (candidate.is_required && candidates.front().is_required) {
        notes.push_back(fmt::format("{} (a preceding network is used)", candidate.entry.name));
      }
      continue;
    }
    auto opened = try_candidate(options, candidate, context, notes);
    if (opened.has_error()) {
      if (options.all || &candidate != &candidates.back()) {
        note_failure(candidate, opened.error(), options.all, context.log, notes);
      }
      errors.push_back(std::move(opened).error());
    } else if (opened.value().has_value()) {
      PLEXUS_TRY(check_name_is_new(nets, *opened.value()));
      nets.push_back(std::move(*opened.value()));
    }
  }
  if (!nets.empty()) {
    log_choice(nets, notes, context.log);
    return nets;
  }
  if (!errors.empty()) {
    return join_errors(std::move(errors));
  }
  notes.erase(notes.begin(), notes.begin() + static_cast<std::ptrdiff_t>(excluded));
  return fail(Code::kInvalidUsage,
              "NCCL_NET={} names a network that no plugin of NCCL_NET_PLUGIN={} provides ({}); "
              "correct one of the two settings",
              options.network, options.plugins, fmt::join(notes, ", "));
}

Result<NetContext> open_net(const NetPluginOptions& options, const NetContextOptions& context) {
  NetPluginOptions one = options;
  one.all = false;
  PLEXUS_TRY(nets, open_nets(one, context));
  return std::move(nets.front().context);
}

}  // namespace plexus
