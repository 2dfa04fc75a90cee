// SPDX-License-Identifier: Apache-2.0
#include "core/plugin/net_plugin.hpp"

#include <algorithm>
#include <exception>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "core/base/config.hpp"
#include "core/plugin/call_watch.hpp"
#include "core/plugin/library.hpp"
#include "core/plugin/nccl_net/adapter.hpp"
#include "core/plugin/nccl_net/choose.hpp"
#include "guest/assert.hpp"

// The host's side of the log callback: a type that the C ABI only declares.
struct plexus_log_sink {
  plexus::NetLog log;
  std::mutex mutex;
  /// The latest PLEXUS_LOG_ERROR line of each thread that was not reported yet, oldest first.
  std::vector<std::pair<std::thread::id, std::string>> errors;
  /// The first PLEXUS_LOG_WARN line of each thread in its control call, in case the call fails.
  std::vector<std::pair<std::thread::id, std::string>> warnings;
  plexus::NetSettings settings;
  /// The answers so far. The plugin may keep pointers to them, so they never change.
  std::map<std::string, std::optional<std::string>, std::less<>> answers;  // guarded by mutex
};

namespace plexus {
namespace net_detail {

/// The state behind a NetContext. Handles point to it, so it never moves.
class ContextState {
 public:
  ContextState(std::shared_ptr<const NetPlugin> used, NetLog log, NetSettings settings)
      : plugin(std::move(used)), data(plugin->descriptor().name) {
    sink.log = std::move(log);
    sink.settings = std::move(settings);
  }
  std::shared_ptr<const NetPlugin> plugin;
  mutable DataPath data;
  mutable plexus_log_sink sink;
  plexus_net_context_t* raw = nullptr;
  std::vector<NetProperties> devices;
};

}  // namespace net_detail

namespace {

using net_detail::ContextState;

/// Limit of kept errors (a plugin may log errors and succeed); the oldest are dropped.
constexpr size_t kErrorsKeptMax = 64;

NetLogLevel level_of(int32_t level) {
  if (level <= PLEXUS_LOG_WARN) {
    return NetLogLevel::kWarn;
  }
  return level == PLEXUS_LOG_INFO ? NetLogLevel::kInfo : NetLogLevel::kTrace;
}

void keep_error(plexus_log_sink& sink, const char* text) {
  const std::scoped_lock lock(sink.mutex);
  const auto me = std::this_thread::get_id();
  std::erase_if(sink.errors, [&](const auto& entry) { return entry.first == me; });
  if (sink.errors.size() == kErrorsKeptMax) {
    sink.errors.erase(sink.errors.begin());
  }
  sink.errors.emplace_back(me, text);
}

void keep_first_warning(plexus_log_sink& sink, const char* text) {
  const std::scoped_lock lock(sink.mutex);
  const auto me = std::this_thread::get_id();
  const bool is_first = std::none_of(sink.warnings.begin(), sink.warnings.end(),
                                     [&](const auto& entry) { return entry.first == me; });
  if (is_first && sink.warnings.size() < kErrorsKeptMax) {
    sink.warnings.emplace_back(me, text);
  }
}

/// Drops this thread's earlier lines, which do not explain later failures.
void forget_lines(plexus_log_sink& sink) {
  const std::scoped_lock lock(sink.mutex);
  const auto me = std::this_thread::get_id();
  for (auto* const lines : {&sink.errors, &sink.warnings}) {
    std::erase_if(*lines, [&](const auto& entry) { return entry.first == me; });
  }
}

/// The error line of this thread's call, or else its first warning.
std::string take_error(plexus_log_sink& sink) {
  const std::scoped_lock lock(sink.mutex);
  const auto me = std::this_thread::get_id();
  std::string text;
  for (auto* const lines : {&sink.errors, &sink.warnings}) {
    const auto mine = std::find_if(lines->begin(), lines->end(),
                                   [&](const auto& entry) { return entry.first == me; });
    if (mine != lines->end()) {
      text = text.empty() ? std::move(mine->second) : text;
      lines->erase(mine);
    }
  }
  return text;
}

/// The log callback that plugins get. No exception may escape into C.
void log_from_plugin(plexus_log_sink* sink,
                     int32_t level,
                     const char* file,
                     int32_t line,
                     const char* text) noexcept {
  if (sink == nullptr || text == nullptr) {
    return;
  }
  try {
    if (level == PLEXUS_LOG_ERROR) {
      keep_error(*sink, text);
    } else if (sink->log) {
      if (level == PLEXUS_LOG_WARN) {
        keep_first_warning(*sink, text);
      }
      const bool is_trace = level_of(level) == NetLogLevel::kTrace && file != nullptr;
      sink->log(level_of(level), is_trace ? fmt::format("{}:{} {}", file, line, text) : text);
    }
  } catch (...) {  // NOLINT(bugprone-empty-catch): a lost log line is the lesser evil
  }
}

/// The settings callback that plugins get.
const char* setting_for_plugin(plexus_log_sink* sink, const char* name) noexcept {
  if (sink == nullptr || name == nullptr) {
    return nullptr;
  }
  try {
    const std::scoped_lock lock(sink->mutex);
    const auto [answer, is_new] = sink->answers.try_emplace(name);
    if (is_new) {
      answer->second = sink->settings(name);
    }
    return answer->second ? answer->second->c_str() : nullptr;
  } catch (...) {
    return nullptr;
  }
}

/// Calls a plugin. An exception is stopped here; a call that takes long is reported by name. For
/// control calls only: the data path has call_entry().
template <class Call>
int32_t call_plugin(const ContextState& context,
                    const char* entry,
                    std::string_view peer,
                    Call&& call) {
  const WatchedCall watched({context.plugin->descriptor().name, entry, peer});
  plexus_log_sink& sink = context.sink;
  forget_lines(sink);
  try {
    const int32_t code = call();
    if (code == PLEXUS_OK || code == PLEXUS_AGAIN) {
      forget_lines(sink);
    }
    return code;
  } catch (...) {
    return net_detail::keep_exception(context, entry);
  }
}

Code code_of(int32_t code) {
  const bool is_known = code > PLEXUS_OK && code <= PLEXUS_TIMEOUT && code != PLEXUS_AGAIN;
  return is_known ? Code{code} : Code::kInternalError;
}

/// Checks the code of a control call that cannot return PLEXUS_AGAIN.
Result<void> check_code(const ContextState& context, std::string_view call, int32_t code) {
  if (code != PLEXUS_OK) {
    return net_detail::make_error(context, call, code);
  }
  return ok();
}

/// Checks the code of a call that makes `handle`.
Result<void> check_handle(const ContextState& context,
                          std::string_view call,
                          int32_t code,
                          const void* handle) {
  PLEXUS_TRY(check_code(context, call, code));
  if (handle == nullptr) {
    return fail(Code::kInternalError,
                "net plugin {}: {} returned PLEXUS_OK but no handle; this is a bug in the plugin",
                context.plugin->descriptor().name, call);
  }
  return ok();
}

/// Checks the code of a call that may return PLEXUS_AGAIN.
Result<NetProgress> check_progress(const ContextState& context,
                                   std::string_view call,
                                   int32_t code,
                                   const void* handle) {
  if (code == PLEXUS_AGAIN) {
    return NetProgress::kPending;
  }
  PLEXUS_TRY(check_handle(context, call, code, handle));
  return NetProgress::kDone;
}

Result<NetProperties> read_properties(const ContextState& context, uint32_t device) {
  const plexus_net_ops_t& ops = context.plugin->ops();
  plexus_net_properties_t raw{};
  const int32_t code = call_plugin(context, "properties", {},
                                   [&] { return ops.properties(context.raw, device, &raw); });
  PLEXUS_TRY(check_code(context, "properties", code));
  auto checked = check_net_properties(raw);
  if (checked.has_error()) {
    return std::move(checked).error().with_context(
        fmt::format("net plugin {} ({}) device {}", context.plugin->descriptor().name,
                    context.plugin->path().string(), device));
  }
  return checked;
}

Result<void> read_devices(ContextState& context) {
  PLEXUS_DCHECK(context.devices.empty() && context.raw != nullptr, context.devices.size());
  const plexus_net_ops_t& ops = context.plugin->ops();
  uint32_t count = 0;
  const int32_t code = call_plugin(context, "device_count", {},
                                   [&] { return ops.device_count(context.raw, &count); });
  PLEXUS_TRY(check_code(context, "device_count", code));
  if (count > kNetDevicesMax) {
    return fail(
        Code::kInvalidUsage,
        "net plugin {} ({}) reports {} devices, expected at most {}; this is a bug in the plugin",
        context.plugin->descriptor().name, context.plugin->path().string(), count, kNetDevicesMax);
  }
  for (uint32_t device = 0; device < count; ++device) {
    PLEXUS_TRY(properties, read_properties(context, device));
    context.devices.push_back(std::move(properties));
  }
  return ok();
}

using QueryFunction = const plexus_plugin_t*(uint32_t);

Result<std::shared_ptr<const NetPlugin>> load_native(const Library& library, QueryFunction* query) {
  const plexus_plugin_t* raw = nullptr;
  try {
    raw = query(PLEXUS_HOST_ABI);
  } catch (...) {
    return fail(Code::kInvalidUsage,
                "its plexus_plugin_query threw an exception; this is a bug in the plugin");
  }
  PLEXUS_TRY(descriptor, check_net_descriptor(raw));
  return std::make_shared<const NetPlugin>(library.path(), std::move(descriptor));
}

/// The N of "vN"; 0: any version; -1: only the native ABI.
Result<int> parse_abi(const std::string& text) {
  if (text.empty() || text == "auto") {
    return 0;
  }
  if (text == "native") {
    return -1;
  }
  for (int version = nccl_net::kVersionLeast; version <= nccl_net::kVersionMost; ++version) {
    if (text == fmt::format("v{}", version)) {
      return version;
    }
  }
  return fail(Code::kInvalidUsage,
              "PLEXUS_NET_ABI={} is invalid: expected auto, native, or v{} to v{}", text,
              nccl_net::kVersionLeast, nccl_net::kVersionMost);
}

Result<nccl_net::V11Layout> parse_v11(const std::string& text) {
  if (text.empty() || text == "auto") {
    return nccl_net::V11Layout::kBySize;
  }
  if (text == "mainline") {
    return nccl_net::V11Layout::kMainline;
  }
  if (text == "cross-dc") {
    return nccl_net::V11Layout::kCrossDc;
  }
  return fail(Code::kInvalidUsage,
              "PLEXUS_NET_V11={} is invalid: expected auto, mainline or cross-dc", text);
}

/// Calls an entry that ends something.
template <class Call>
void end_use(const ContextState& context,
             const char* entry,
             std::string_view peer,
             const Call& call) noexcept {
  const WatchedCall watched({context.plugin->descriptor().name, entry, peer});
  const DataPath::Call marked(context.data, entry);
  const NetStatus status = net_detail::call_entry(context, entry, [&]() -> int32_t {
    call();
    return PLEXUS_OK;
  });
  if (status != NetStatus::kOk && context.sink.log) {
    try {
      context.sink.log(NetLogLevel::kWarn,
                       net_detail::make_error(context, entry, PLEXUS_INTERNAL_ERROR).message());
    } catch (...) {  // NOLINT(bugprone-empty-catch): a lost log line is the lesser evil
    }
  }
}

/// The text of the exception that is being handled.
std::string describe_exception(const char* entry) {
  std::string reason;
  try {
    throw;
  } catch (const std::exception& thrown) {
    reason = fmt::format(" ({})", thrown.what());
  } catch (...) {  // NOLINT(bugprone-empty-catch): without a text
  }
  return fmt::format("its {} threw an exception{}; this is a bug in the plugin", entry, reason);
}

std::string describe_device(const ContextState& context, uint32_t device) {
  return fmt::format("plugin {} on device {} ({})", context.plugin->descriptor().name, device,
                     context.devices.at(device).name);
}

/// For the next make_error(). Returns PLEXUS_INTERNAL_ERROR.
template <class Describe>
int32_t keep_reason(const ContextState& context, const Describe& describe) noexcept {
  try {
    keep_error(context.sink, describe().c_str());
  } catch (...) {  // NOLINT(bugprone-empty-catch): a lost reason is the lesser evil
  }
  return PLEXUS_INTERNAL_ERROR;
}

}  // namespace

DataPath& net_detail::data_path_of(const ContextState& context) noexcept { return context.data; }

int32_t net_detail::keep_exception(const ContextState& context, const char* entry) noexcept {
  return keep_reason(context, [&] { return describe_exception(entry); });
}

int32_t net_detail::keep_lack_of_request(const ContextState& context,
                                         const char* entry,
                                         CallPlace place) noexcept {
  return keep_reason(context, [&] {
    return fmt::format(
        "{} of {} {} {} returned PLEXUS_OK but no request; this is a bug in the plugin", entry,
        describe_device(context, place.device), place.way, place.peer);
  });
}

Error net_detail::make_error(const ContextState& context, std::string_view call, int32_t code) {
  std::string text = take_error(context.sink);
  if (text.empty()) {
    text = fmt::format("{} failed with code {} and gave no reason", call, code);
  }
  return fail(code_of(code), "net plugin {}: {}", context.plugin->descriptor().name, text);
}

Result<std::shared_ptr<const NetPlugin>> NetPlugin::load(const std::filesystem::path& path,
                                                         const NetLoadOptions& options) {
  PLEXUS_TRY(version, parse_abi(options.abi));
  PLEXUS_TRY(v11, parse_v11(options.v11));
  PLEXUS_TRY(library, Library::load(path));
  auto* query = library.find_function<QueryFunction>("plexus_plugin_query");
  if (query != nullptr && version <= 0) {
    return load_native(library, query);
  }
  if (version < 0) {
    return fail(Code::kInvalidUsage,
                "it has no plexus_plugin_query, which PLEXUS_NET_ABI=native requires; correct or "
                "unset PLEXUS_NET_ABI");
  }
  PLEXUS_TRY(choice, nccl_net::choose_net(library, version, v11));
  return nccl_net::adapt(library, std::move(choice));
}

std::string NetPlugin::network_name() const {
  return origin_ == nullptr ? descriptor_.name : origin_->name();
}

int32_t NetPlugin::init(const plexus_net_config_t* config, plexus_net_context_t** context) const {
  const auto lock = hold_environment();
  return origin_ == nullptr ? ops().init(config, context) : origin_->init(config, context);
}

Result<NetContext> NetContext::create(std::shared_ptr<const NetPlugin> plugin,
                                      NetContextOptions options) {
  State state(
      new ContextState(std::move(plugin), std::move(options.log), std::move(options.settings)));
  plexus_net_config_t config{};
  config.struct_size = sizeof config;
  config.traffic_class = options.traffic_class;
  config.comm_id = options.comm_id;
  config.log = &log_from_plugin;
  config.log_sink = &state->sink;
  config.setting = state->sink.settings ? &setting_for_plugin : nullptr;
  plexus_net_context_t* raw = nullptr;
  const int32_t code =
      call_plugin(*state, "init", {}, [&] { return state->plugin->init(&config, &raw); });
  PLEXUS_TRY(check_handle(*state, "init", code, raw));
  state->raw = raw;
  PLEXUS_TRY(read_devices(*state));
  return NetContext{std::move(state)};
}

const NetPlugin& NetContext::plugin() const noexcept { return *state_->plugin; }

bool NetContext::has_read(std::string_view name) const {
  const std::scoped_lock lock(state_->sink.mutex);
  return state_->sink.answers.contains(name);
}

uint32_t NetContext::device_count() const noexcept {
  return static_cast<uint32_t>(state_->devices.size());
}

const NetProperties& NetContext::properties(uint32_t device) const {
  return state_->devices.at(device);
}

std::string NetContext::describe(uint32_t device) const { return describe_device(*state_, device); }

Result<NetListen> NetContext::listen(uint32_t device, std::string_view peer) const {
  PLEXUS_DCHECK(device < device_count(), device, device_count());
  const plexus_net_ops_t& ops = state_->plugin->ops();
  plexus_net_listen_t* raw = nullptr;
  NetHandle handle{};
  const int32_t code = call_plugin(*state_, "listen", peer,
                                   [&] { return ops.listen(state_->raw, device, &handle, &raw); });
  PLEXUS_TRY(check_handle(*state_, "listen", code, raw));
  return NetListen{state_.get(), &ops, raw, device, handle, peer};
}

NetSend NetContext::connect(uint32_t device, const NetHandle& handle, std::string_view peer) const {
  PLEXUS_DCHECK(device < device_count(), device, device_count());
  return NetSend{state_.get(), &state_->plugin->ops(), device, handle, peer};
}

Result<NetPath> NetContext::net_path(uint64_t source, uint64_t target) const {
  const plexus_net_ops_t& ops = state_->plugin->ops();
  if (ops.net_path == nullptr) {
    NetPath path;
    if (source == target) {
      path.level = PLEXUS_NET_LEVEL_SAME_DC;
    }
    return path;
  }
  plexus_net_path_t raw{};
  const int32_t code = call_plugin(*state_, "net_path", {},
                                   [&] { return ops.net_path(state_->raw, source, target, &raw); });
  PLEXUS_TRY(check_code(*state_, "net_path", code));
  return check_net_path(raw);
}

NetRecv NetListen::accept(std::string_view peer) const {
  return NetRecv{context_, ops_, device_, raw_, peer};
}

Result<NetProgress> NetSend::try_connect() {
  const int32_t code = call_plugin(*context_, "connect", peer_, [&] {
    return ops_->connect(context_->raw, device_, &handle_, &raw_);
  });
  return check_progress(*context_, "connect", code, raw_);
}

bool NetContext::takes_pieces(uint32_t device) const {
  const plexus_net_ops_t& ops = state_->plugin->ops();
  return ops.isend_pieces != nullptr && ops.irecv_pieces != nullptr &&
         properties(device).takes_pieces;
}

bool NetContext::gathers() const noexcept {
  return state_->plugin->ops().isend_gathered != nullptr;
}

Result<NetProgress> NetRecv::try_accept() {
  const int32_t code =
      call_plugin(*context_, "accept", peer_, [&] { return ops_->accept(listen_, &raw_); });
  return check_progress(*context_, "accept", code, raw_);
}

Result<NetMemory> NetSend::register_memory(const plexus_net_region_t& region) {
  plexus_net_memory_t* raw = nullptr;
  const int32_t code = call_plugin(*context_, "register_send", peer_,
                                   [&] { return ops_->register_send(raw_, &region, &raw); });
  PLEXUS_TRY(check_code(*context_, "register_send", code));
  return NetMemory{context_, ops_, raw, peer_};
}

Result<NetMemory> NetRecv::register_memory(const plexus_net_region_t& region) {
  plexus_net_memory_t* raw = nullptr;
  const int32_t code = call_plugin(*context_, "register_recv", peer_,
                                   [&] { return ops_->register_recv(raw_, &region, &raw); });
  PLEXUS_TRY(check_code(*context_, "register_recv", code));
  return NetMemory{context_, ops_, raw, peer_};
}

// ---- ends of handles: a failure here has no consequence but a line in the log ----

void net_detail::CloseContext::operator()(ContextState* state) const noexcept {
  if (state->raw != nullptr) {
    end_use(*state, "finalize", {}, [&] { state->plugin->ops().finalize(state->raw); });
  }
  delete state;  // NOLINT(cppcoreguidelines-owning-memory): the deleter of NetContext::state_
}

void net_detail::close(const ContextState& context,
                       std::string_view peer,
                       plexus_net_listen_t* raw) noexcept {
  end_use(context, "close_listen", peer, [&] { context.plugin->ops().close_listen(raw); });
}
void net_detail::close(const ContextState& context,
                       std::string_view peer,
                       plexus_net_send_t* raw) noexcept {
  end_use(context, "close_send", peer, [&] { context.plugin->ops().close_send(raw); });
}
void net_detail::close(const ContextState& context,
                       std::string_view peer,
                       plexus_net_recv_t* raw) noexcept {
  end_use(context, "close_recv", peer, [&] { context.plugin->ops().close_recv(raw); });
}
void net_detail::close(const ContextState& context,
                       std::string_view peer,
                       plexus_net_memory_t* raw) noexcept {
  end_use(context, "deregister", peer, [&] { (void)context.plugin->ops().deregister(raw); });
}

}  // namespace plexus
