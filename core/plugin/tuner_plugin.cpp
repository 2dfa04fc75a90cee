// SPDX-License-Identifier: Apache-2.0
#include "core/plugin/tuner_plugin.hpp"

#include <algorithm>
#include <cstring>
#include <exception>
#include <optional>
#include <vector>

#include "core/base/log.hpp"
#include "core/plugin/library.hpp"

namespace plexus {
namespace {

constexpr const char* kOwnTuner = "tuner-default";
constexpr uint32_t kTableBytesMax = 64 * 1024;

/// The plugin's lines go straight to our log.
void write_line(
    plexus_log_sink_t* /*sink*/, int32_t level, const char* file, int32_t line, const char* text) {
  const bool warns = level <= PLEXUS_LOG_WARN;
  const LogLevel our_level = warns ? LogLevel::kWarn : LogLevel::kInfo;
  if (text != nullptr && log_enabled(our_level, Subsystem::kTuning)) {
    log(our_level, Subsystem::kTuning, file == nullptr ? "" : file, line, text);
  }
}

/// Where `name` may be, most likely first: as a file of ours, as NCCL names tuners, as it is.
std::vector<std::filesystem::path> find_files(const TunerOptions& options,
                                              const std::string& name) {
  if (name.find('/') != std::string::npos) {
    return {name};
  }
  std::vector<std::filesystem::path> folders = {options.own_folder};
  for (size_t at = 0; at < options.folders.size();) {
    const size_t end = std::min(options.folders.find(':', at), options.folders.size());
    folders.emplace_back(options.folders.substr(at, end - at));
    at = end + 1;
  }
  std::vector<std::filesystem::path> files;
  for (const std::string& file : {"libplexus-" + name + ".so", "libplexus-tuner-" + name + ".so",
                                  "libnccl-tuner-" + name + ".so", name}) {
    for (const std::filesystem::path& folder : folders) {
      if (std::error_code ignored; std::filesystem::is_regular_file(folder / file, ignored)) {
        files.push_back(folder / file);
      }
    }
  }
  return files;
}

Result<Library> find_library(const TunerOptions& options, const std::string& name) {
  for (const std::filesystem::path& file : find_files(options, name)) {
    return Library::load(file);
  }
  // Not in our folders: where the dynamic loader looks.
  for (const std::string& file :
       {"libplexus-" + name + ".so", "libnccl-tuner-" + name + ".so", name}) {
    if (auto library = Library::load(file); library.has_value()) {
      return library;
    }
  }
  return fail(
      Code::kInvalidUsage,
      "there is no tuner plugin {}: looked for libplexus-{}.so and libnccl-tuner-{}.so beside "
      "libplexus.so, in PLEXUS_PLUGIN_PATH and where the dynamic loader looks",
      name, name, name);
}

Result<const plexus_plugin_t*> query(const Library& library) {
  using Query = const plexus_plugin_t*(uint32_t);
  Query* const entry = library.find_function<Query>("plexus_plugin_query");
  if (entry == nullptr) {
    return fail(Code::kInvalidUsage,
                "{} is no Plexus plugin: it does not export plexus_plugin_query",
                library.path().string());
  }
  const plexus_plugin_t* const plugin = entry(PLEXUS_HOST_ABI);
  if (plugin == nullptr) {
    return fail(Code::kInvalidUsage, "{} refuses this host (plugin ABI {}.{})",
                library.path().string(), PLEXUS_ABI_MAJOR, PLEXUS_ABI_MINOR);
  }
  return plugin;
}

/// The descriptor and the mandatory entries of its table.
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
  if (size_bytes < sizeof(plexus_tuner_ops_t) || size_bytes > kTableBytesMax) {
    return fail(Code::kInvalidUsage, "{} has a tuner table of {} bytes, expected {}", file,
                size_bytes, sizeof(plexus_tuner_ops_t));
  }
  const plexus_tuner_ops_t& ops = *plugin.tuner;
  if (ops.init == nullptr || ops.get_times == nullptr || ops.finalize == nullptr) {
    return fail(Code::kInvalidUsage, "{} lacks init, get_times or finalize", file);
  }
  return ops;
}

/// A call across the ABI: an exception that escapes is a code like any other.
template <class Call>
int32_t guarded(const Call& call) noexcept {
  try {
    return call();
  } catch (...) {
    return PLEXUS_INTERNAL_ERROR;
  }
}

}  // namespace

Result<std::unique_ptr<Tuner>> Tuner::open(const TunerOptions& options,
                                           const plexus_tuner_comm_t& comm) {
  if (options.plugin == "none") {
    return std::unique_ptr<Tuner>();
  }
  const bool is_named = !options.plugin.empty();
  auto library = find_library(options, is_named ? options.plugin : kOwnTuner);
  if (library.has_error()) {
    return is_named ? Result<std::unique_ptr<Tuner>>(std::move(library).error())
                    : Result<std::unique_ptr<Tuner>>(std::unique_ptr<Tuner>());
  }
  PLEXUS_TRY(plugin, query(library.value()));
  PLEXUS_TRY(ops, check(*plugin, library.value().path().string()));
  std::unique_ptr<Tuner> tuner(new Tuner());
  tuner->ops_ = ops;
  tuner->name_ = fmt::format("{} {}", plugin->name, plugin->version);
  const int32_t code =
      guarded([&] { return ops.init(&tuner->context_, &comm, write_line, nullptr); });
  if (code != PLEXUS_OK) {
    PLEXUS_WARN("tuner {} did not start (code {}): the built-in choice is used", tuner->name_,
                code);
    return std::unique_ptr<Tuner>();
  }
  PLEXUS_INFO(kTuning, "tuner: {} from {}", tuner->name_, library.value().path().string());
  return tuner;
}

Tuner::~Tuner() {
  if (context_ != nullptr) {
    (void)guarded([this] { return ops_.finalize(context_); });
  }
}

bool Tuner::complain(const std::string& why) {
  if (!std::exchange(complained_, true)) {
    PLEXUS_WARN("tuner {} {}: the built-in choice is used", name_, why);
  }
  return false;
}

bool Tuner::get_times(const plexus_tuner_call_t& call,
                      std::span<plexus_tuner_candidate_t> candidates) {
  const std::vector<plexus_tuner_candidate_t> asked(candidates.begin(), candidates.end());
  const int32_t code = guarded([&] {
    return ops_.get_times(context_, &call, candidates.data(),
                          static_cast<uint32_t>(candidates.size()),
                          sizeof(plexus_tuner_candidate_t));
  });
  if (code != PLEXUS_OK) {
    return complain(fmt::format("failed with code {}", code));
  }
  bool any = false;
  for (size_t i = 0; i < candidates.size(); ++i) {
    plexus_tuner_candidate_t answer = asked[i];  // only the answer's fields are the tuner's
    answer.time_ns = std::max<int64_t>(candidates[i].time_ns, -1);
    answer.channels = std::clamp(candidates[i].channels, answer.channels_min, answer.channels_max);
    answer.chunk_bytes = std::clamp(candidates[i].chunk_bytes, std::min(64U, answer.chunk_bytes),
                                    answer.chunk_bytes);
    any = any || answer.time_ns >= 0;
    candidates[i] = answer;
  }
  return any || complain(fmt::format("found none of {} ways to do {} possible", candidates.size(),
                                     call.collective));
}

}  // namespace plexus
