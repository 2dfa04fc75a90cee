// SPDX-License-Identifier: Apache-2.0
#include "core/plugin/tuner_plugin.hpp"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <exception>
#include <optional>
#include <vector>

#include <fmt/ranges.h>

#include "core/base/config.hpp"
#include "core/base/log.hpp"
#include "core/plugin/guarded.hpp"
#include "core/plugin/library.hpp"
#include "core/plugin/library_search.hpp"
#include "core/plugin/nccl_tuner/adapter.hpp"
#include "core/plugin/registry.hpp"

namespace plexus {
namespace {

constexpr uint32_t kTunerTableBytesMin = offsetof(plexus_tuner_ops_t, links_changed);
constexpr uint32_t kTunerTableBytesMax = 64 * 1024;

std::vector<std::filesystem::path> list_folders(const TunerOptions& options) {
  return list_plugin_folders(options.own_folder, options.folders);
}

/// File names that `name` may mean, most likely first: Plexus's, then NCCL's, then the name itself.
std::vector<std::string> tuner_file_names(const std::string& name) {
  return {"libplexus-" + name + ".so", "libplexus-tuner-" + name + ".so",
          "libnccl-tuner-" + name + ".so", name};
}

/// Loads the first of `names` from Plexus's folders, or else by the dynamic loader's rules;
/// nullopt: not found. An Error: a file exists and cannot be loaded.
Result<std::optional<Library>> find_library(const TunerOptions& options,
                                            const std::vector<std::string>& names) {
  for (const std::string& file : names) {
    for (const std::filesystem::path& folder : list_folders(options)) {
      // A path with a '/' is used as it is.
      const bool is_path = file.find('/') != std::string::npos;
      const std::filesystem::path path = is_path ? std::filesystem::path(file) : folder / file;
      std::error_code ignored;
      if ((is_path && std::filesystem::exists(path, ignored)) || is_library_at(path)) {
        auto library = Library::load(path);
        if (library.has_error()) {
          return std::move(library).error().with_context(path.string());
        }
        return std::optional(std::move(library).value());
      }
    }
  }
  for (const std::string& file : names) {
    if (file.find('/') == std::string::npos) {
      if (auto library = Library::load(file); library.has_value()) {
        return std::optional(std::move(library).value());
      }
    }
  }
  return std::optional<Library>();
}

/// The first library of NCCL_NET_PLUGIN that contains a tuner, as in NCCL.
Result<std::optional<Library>> find_in_net_plugins(const TunerOptions& options) {
  PLEXUS_TRY(list, parse_net_plugin_list(options.net_plugins));
  for (const NetPluginEntry& entry : list.named) {
    auto library = find_library(options, net_plugin_file_names(entry.name));
    if (library.has_error() || !library.value().has_value()) {
      continue;  // opening the network reports the error
    }
    const auto tuner = nccl_tuner::choose_tuner(*library.value());
    if (tuner.has_value() && tuner.value().has_value()) {
      return library;
    }
  }
  return std::optional<Library>();
}

/// nullopt: it is not installed, or cannot be used.
std::optional<Library> find_own(const TunerOptions& options) {
  auto own = options.own.empty() ? Result<std::optional<Library>>(std::optional<Library>())
                                 : find_library(options, tuner_file_names(options.own));
  return own.has_error() ? std::nullopt : std::move(own).value();
}

/// The library that the options mean; nullopt: none, and the user named none.
Result<std::optional<Library>> find_tuner(const TunerOptions& options) {
  if (!options.plugin.empty()) {
    PLEXUS_TRY(named, find_library(options, tuner_file_names(options.plugin)));
    if (named.has_value()) {
      return std::move(named);
    }
  }
  PLEXUS_TRY(in_net, find_in_net_plugins(options));
  if (in_net.has_value()) {
    return std::move(in_net);
  }
  if (options.plugin.empty()) {
    return find_own(options);
  }
  return fail(Code::kInvalidUsage,
              "tuner plugin {} was not found: looked for {} "
              "beside libplexus.so, in the folder plexus there, in PLEXUS_PLUGIN_PATH and where "
              "the dynamic loader looks, and "
              "for a tuner in the libraries of NCCL_NET_PLUGIN",
              options.plugin, fmt::join(tuner_file_names(options.plugin), ", "));
}

Result<const plexus_plugin_t*> query(const Library& library) {
  using Query = const plexus_plugin_t*(uint32_t);
  Query* const entry = library.find_function<Query>("plexus_plugin_query");
  if (entry == nullptr) {
    return fail(Code::kInvalidUsage,
                "{} is not a tuner plugin: it exports neither plexus_plugin_query nor "
                "ncclTunerPlugin_v{} to v{}",
                library.path().string(), nccl_tuner::kVersionLeast, nccl_tuner::kVersionMost);
  }
  const plexus_plugin_t* const plugin = entry(PLEXUS_HOST_ABI);
  if (plugin == nullptr) {
    return fail(Code::kInvalidUsage, "{} does not support this host (plugin ABI {}.{})",
                library.path().string(), PLEXUS_ABI_MAJOR, PLEXUS_ABI_MINOR);
  }
  return plugin;
}

/// Checks the descriptor and the mandatory entries of its table.
Result<plexus_tuner_ops_t> check(const plexus_plugin_t& plugin, const std::string& file) {
  if (plugin.magic != PLEXUS_PLUGIN_MAGIC || plugin.abi_major != PLEXUS_ABI_MAJOR) {
    return fail(Code::kInvalidUsage, "{} has plugin ABI {}.{}, expected {}.x", file,
                plugin.abi_major, plugin.abi_minor, PLEXUS_ABI_MAJOR);
  }
  if (plugin.kind != PLEXUS_KIND_TUNER) {
    return fail(Code::kInvalidUsage, "{} is a plugin of kind {}, expected {} (tuner)", file,
                plugin.kind, PLEXUS_KIND_TUNER);
  }
  const bool has_table = plugin.struct_size >= sizeof(plexus_plugin_t) && plugin.tuner != nullptr;
  const uint32_t size_bytes = has_table ? plugin.tuner->struct_size : 0;
  if (size_bytes < kTunerTableBytesMin || size_bytes > kTunerTableBytesMax) {
    return fail(Code::kInvalidUsage, "{} has a tuner table of {} bytes, expected {} or more", file,
                size_bytes, kTunerTableBytesMin);
  }
  plexus_tuner_ops_t ops{};  // an older plugin lacks the last entries
  std::memcpy(&ops, plugin.tuner, std::min<size_t>(size_bytes, sizeof(ops)));
  if (ops.init == nullptr || ops.get_times == nullptr || ops.finalize == nullptr) {
    return fail(Code::kInvalidUsage, "{} lacks init, get_times or finalize", file);
  }
  return ops;
}

/// A tuner of plexus_tuner.h.
class NativeTuner final : public TunerSource {
 public:
  NativeTuner(const plexus_plugin_t& plugin, const plexus_tuner_ops_t& ops)
      : name_(fmt::format("{} {}", plugin.name, plugin.version)), ops_(ops) {}
  ~NativeTuner() override {
    if (context_ != nullptr) {
      (void)guarded([this] { return ops_.finalize(context_); });
    }
  }
  NativeTuner(const NativeTuner&) = delete;
  NativeTuner& operator=(const NativeTuner&) = delete;

  Result<void> init(const plexus_tuner_comm_t& comm) {
    auto* const sink = reinterpret_cast<plexus_log_sink_t*>(this);
    return run("init", [&] {
      const auto lock = hold_environment();
      return ops_.init(&context_, &comm, write_line, sink);
    });
  }
  Result<bool> get_times(const plexus_tuner_call_t& call,
                         std::span<plexus_tuner_candidate_t> candidates,
                         size_t /*built_in*/) override {
    PLEXUS_TRY(run("get_times", [&] {
      return ops_.get_times(context_, &call, candidates.data(),
                            static_cast<uint32_t>(candidates.size()),
                            sizeof(plexus_tuner_candidate_t));
    }));
    return true;
  }
  Result<bool> change_links(const plexus_tuner_comm_t& comm) override {
    if (ops_.links_changed == nullptr) {
      return false;
    }
    PLEXUS_TRY(run("links_changed", [&] { return ops_.links_changed(context_, &comm); }));
    return true;
  }
  [[nodiscard]] std::string name() const override { return name_; }

 private:
  /// The plugin's log callback: lines go to the log, the reason of a failure is kept for its Error.
  static void write_line(
      plexus_log_sink_t* sink, int32_t level, const char* file, int32_t line, const char* text) {
    if (text == nullptr) {
      return;
    }
    if (level == PLEXUS_LOG_ERROR) {
      reinterpret_cast<NativeTuner*>(sink)->reason_ = text;
      return;
    }
    const LogLevel ours = level == PLEXUS_LOG_WARN ? LogLevel::kWarn : LogLevel::kInfo;
    if (log_enabled(ours, Subsystem::kTuning)) {
      log(ours, Subsystem::kTuning, file == nullptr ? "" : file, line, text);
    }
  }

  template <class Call>
  Result<void> run(const char* what, const Call& call) {
    reason_.clear();
    const int32_t code = guarded(call);
    if (code == PLEXUS_OK) {
      return ok();
    }
    const Code cause = code == PLEXUS_INVALID_USAGE ? Code::kInvalidUsage : Code::kSystemError;
    return reason_.empty() ? fail(cause, "its {} failed with code {}", what, code)
                           : fail(cause, "{}", reason_);
  }

  std::string name_;
  plexus_tuner_ops_t ops_;
  std::string reason_;  // reason logged by the plugin during the call in progress
  plexus_tuner_context_t* context_ = nullptr;
};

/// What a plugin says of a setting that it cannot use (NAME=value: ...), with where that was set.
/// nullopt: the sentence is of something else.
std::optional<std::string> find_bad_setting(const Error& error) {
  const std::string& sentence = error.message();
  const std::string name = sentence.substr(0, sentence.find('='));
  const auto value = setting_value(name);
  const std::string begin = fmt::format("{}={}: ", name, value.value_or(""));
  if (error.code() != Code::kInvalidUsage || !value.has_value() || !sentence.starts_with(begin)) {
    return std::nullopt;
  }
  return fmt::format("{}: {}", describe_setting(name.c_str(), *value),
                     sentence.substr(begin.size()));
}

/// A communicator works without a tuner, so a tuner that does not start is only a WARN.
std::unique_ptr<TunerSource> warn_not_started(const std::string& name, const Error& error) {
  PLEXUS_WARN("tuner {} did not start ({}): the built-in choice is used", name, error.message());
  return nullptr;
}

Result<std::unique_ptr<TunerSource>> start_native(const Library& library,
                                                  const plexus_tuner_comm_t& comm) {
  PLEXUS_TRY(plugin, query(library));
  PLEXUS_TRY(ops, check(*plugin, library.path().string()));
  auto tuner = std::make_unique<NativeTuner>(*plugin, ops);
  if (const auto started = tuner->init(comm); started.has_error()) {
    // Other algorithms than the user's setting asks for would be chosen, unnoticed.
    if (const auto bad = find_bad_setting(started.error())) {
      return fail(Code::kInvalidUsage, "{}", *bad);
    }
    return warn_not_started(tuner->name(), started.error());
  }
  return std::unique_ptr<TunerSource>(std::move(tuner));
}

/// Plexus's own tuner, whose times are the model for tuners of NCCL's ABI; nullptr: not installed,
/// or, with a WARN, not started.
std::unique_ptr<TunerSource> start_model(const TunerOptions& options,
                                         const plexus_tuner_comm_t& comm) {
  const auto library = find_own(options);
  if (!library.has_value()) {
    return nullptr;
  }
  auto model = start_native(*library, comm);
  return model.has_error() ? nullptr : std::move(model).value();
}

/// Native tuners are tuners of NCCL's ABI, too, and are told more as the former.
bool is_native_tuner(const Library& library) {
  const auto plugin = query(library);
  return plugin.has_value() && plugin.value()->magic == PLEXUS_PLUGIN_MAGIC &&
         plugin.value()->kind == PLEXUS_KIND_TUNER;
}

/// nullptr, with a WARN: it did not start. A library with both a native network and a tuner of
/// NCCL's ABI counts as the tuner here.
Result<std::unique_ptr<TunerSource>> start_source(const TunerOptions& options,
                                                  const Library& library,
                                                  const plexus_tuner_comm_t& comm) {
  if (is_native_tuner(library)) {
    return start_native(library, comm);
  }
  PLEXUS_TRY(choice, nccl_tuner::choose_tuner(library));
  if (!choice.has_value()) {
    return start_native(library, comm);
  }
  const std::string name = choice->entry;
  auto source = nccl_tuner::start(std::move(*choice), comm, start_model(options, comm));
  if (source.has_error()) {
    return warn_not_started(fmt::format("{} of {}", name, library.path().string()), source.error());
  }
  return source;
}

}  // namespace

Tuner::Tuner(std::unique_ptr<TunerSource> source)
    : source_(std::move(source)), name_(source_->name()) {}

Result<std::unique_ptr<Tuner>> Tuner::open(const TunerOptions& options,
                                           const plexus_tuner_comm_t& comm) {
  if (options.plugin == "none") {
    return std::unique_ptr<Tuner>();
  }
  auto tuner = load(options, comm);
  const bool is_named = !options.plugin.empty() || !options.net_plugins.empty();
  if (tuner.has_error() && is_named) {
    return std::move(tuner).error().with_context(
        options.plugin.empty() ? fmt::format("tuner of NCCL_NET_PLUGIN={}", options.net_plugins)
                               : fmt::format("NCCL_TUNER_PLUGIN={}", options.plugin));
  }
  return tuner;
}

Result<std::unique_ptr<Tuner>> Tuner::load(const TunerOptions& options,
                                           const plexus_tuner_comm_t& comm) {
  PLEXUS_TRY(library, find_tuner(options));
  if (!library.has_value()) {
    return std::unique_ptr<Tuner>();
  }
  PLEXUS_TRY(source, start_source(options, *library, comm));
  if (source == nullptr) {
    return std::unique_ptr<Tuner>();
  }
  std::unique_ptr<Tuner> tuner(new Tuner(std::move(source)));
  PLEXUS_INFO(kInit, "tuner {} from {}", tuner->name_, library->path().string());
  return tuner;
}

bool Tuner::complain(const std::string& why) {
  if (!std::exchange(complained_, true)) {
    PLEXUS_WARN("tuner {} failed ({}): the built-in choice is used", name_, why);
  }
  return false;
}

void Tuner::change_links(const plexus_tuner_comm_t& comm) {
  const auto changed = source_->change_links(comm);
  if (changed.has_error()) {
    PLEXUS_WARN("tuner {} failed to take changed links ({}): its times may be those of before",
                name_, changed.error().message());
  } else if (!changed.value()) {
    PLEXUS_INFO(kTuning,
                "tuner {} cannot be told that links changed: its times are those of before", name_);
  }
}

bool Tuner::get_times(const plexus_tuner_call_t& call,
                      std::span<plexus_tuner_candidate_t> candidates,
                      size_t built_in) {
  const std::vector<plexus_tuner_candidate_t> asked(candidates.begin(), candidates.end());
  const auto answered = source_->get_times(call, candidates, built_in);
  if (answered.has_error()) {
    return complain(answered.error().message());
  }
  if (!answered.value()) {
    return false;
  }
  bool any = false;
  for (size_t i = 0; i < candidates.size(); ++i) {
    // only the answer's fields are taken from the tuner
    plexus_tuner_candidate_t answer = asked[i];
    answer.time_ns = std::max<int64_t>(candidates[i].time_ns, -1);
    answer.channels = std::clamp(candidates[i].channels, answer.channels_min, answer.channels_max);
    answer.chunk_bytes = std::clamp(candidates[i].chunk_bytes, std::min(64U, answer.chunk_bytes),
                                    answer.chunk_bytes);
    answer.trial_calls =
        candidates[i].trial_calls == 0
            ? 0
            : std::clamp(candidates[i].trial_calls, PLEXUS_TRIAL_CALLS_MIN, PLEXUS_TRIAL_CALLS_MAX);
    any = any || answer.time_ns >= 0;
    candidates[i] = answer;
  }
  return any || complain(fmt::format("excluded all {} algorithms for {}", candidates.size(),
                                     call.collective));
}

}  // namespace plexus
