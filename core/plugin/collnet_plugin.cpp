// SPDX-License-Identifier: Apache-2.0
#include "core/plugin/collnet_plugin.hpp"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <exception>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "core/base/config.hpp"
#include "core/base/log.hpp"
#include "core/plugin/call_watch.hpp"
#include "guest/assert.hpp"

namespace plexus {
namespace collnet_detail {

class Context {
 public:
  explicit Context(std::shared_ptr<const CollnetPlugin> used)
      : plugin(std::move(used)), data(plugin->name) {}
  std::shared_ptr<const CollnetPlugin> plugin;
  mutable DataPath data;
  plexus_collnet_context_t* raw = nullptr;
  std::vector<plexus_collnet_properties_t> devices;
  mutable std::mutex mutex;
  mutable std::string reason;  // guarded by mutex; of the latest failure
  /// What settings the plugin asked for. It may keep pointers to them, so they never change.
  std::map<std::string, std::optional<std::string>, std::less<>> answers;  // guarded by mutex
};

/// In a handler: keeps what `entry` threw for make_error().
[[gnu::cold, gnu::noinline]] void keep_exception(const Context& context,
                                                 const char* entry) noexcept {
  try {
    std::string text;
    try {
      throw;
    } catch (const std::exception& thrown) {
      text = fmt::format(" ({})", thrown.what());
    } catch (...) {  // NOLINT(bugprone-empty-catch): without a text
    }
    const std::lock_guard lock(context.mutex);
    context.reason =
        fmt::format("its {} threw an exception{}; this is a bug in the plugin", entry, text);
  } catch (...) {  // NOLINT(bugprone-empty-catch): a lost reason is the lesser evil
  }
}

const char* setting_for_collnet(plexus_log_sink_t* sink, const char* name) noexcept {
  if (sink == nullptr || name == nullptr) {
    return nullptr;
  }
  try {
    auto& context = *reinterpret_cast<Context*>(sink);
    const std::lock_guard lock(context.mutex);
    const auto [answer, is_new] = context.answers.try_emplace(name);
    if (is_new) {
      answer->second = setting_value(name);
    }
    return answer->second ? answer->second->c_str() : nullptr;
  } catch (...) {
    return nullptr;
  }
}

/// Calls `entry`; an exception becomes an error code.
template <class Call>
int32_t call_entry(const Context& context, const char* entry, const Call& call) noexcept {
  const DataPath::Call marked(context.data, entry);
  try {
    return call();
  } catch (...) {
    keep_exception(context, entry);
    return PLEXUS_INTERNAL_ERROR;
  }
}

/// Calls an entry that ends something: a failure has no consequence.
template <class Call>
void end_use(const Context& context,
             const char* entry,
             std::string_view peer,
             const Call& call) noexcept {
  const WatchedCall watched({context.plugin->name, entry, peer});
  (void)call_entry(context, entry, [&]() -> int32_t {
    call();
    return PLEXUS_OK;
  });
}

void CloseContext::operator()(Context* context) const noexcept {
  if (context->raw != nullptr) {
    end_use(*context, "finalize", {}, [&] { context->plugin->ops.finalize(context->raw); });
  }
  delete context;  // NOLINT(cppcoreguidelines-owning-memory): the deleter of CollnetContext::state_
}

Error make_error(const Context& context, std::string_view call, int32_t code) {
  const bool is_known = code > PLEXUS_OK && code <= PLEXUS_TIMEOUT && code != PLEXUS_AGAIN;
  const std::lock_guard lock(context.mutex);
  const std::string reason = std::exchange(context.reason, {});
  return fail(
      is_known ? Code{code} : Code::kInternalError, "collnet plugin {}: {}", context.plugin->name,
      reason.empty() ? fmt::format("its {} failed with code {} and gave no reason", call, code)
                     : reason);
}

}  // namespace collnet_detail

namespace {

constexpr uint32_t kCollnetTableBytesMax = 64 * 1024;

using collnet_detail::call_entry;
using collnet_detail::Context;
using collnet_detail::make_error;

/// The log callback that plugins get. No exception may escape into C.
void log_from_collnet(plexus_log_sink_t* sink,
                      int32_t level,
                      const char* file,
                      int32_t line,
                      const char* text) noexcept {
  if (text == nullptr) {
    return;
  }
  try {
    if (level == PLEXUS_LOG_ERROR) {
      const auto& context = *reinterpret_cast<const Context*>(sink);
      const std::lock_guard lock(context.mutex);
      context.reason = text;
      return;
    }
    const LogLevel ours = level == PLEXUS_LOG_WARN ? LogLevel::kWarn : LogLevel::kInfo;
    if (log_enabled(ours, Subsystem::kNet)) {
      log(ours, Subsystem::kNet, file == nullptr ? "" : file, line, text);
    }
  } catch (...) {  // NOLINT(bugprone-empty-catch): a lost log line is the lesser evil
  }
}

Result<void> check_made(const Context& context,
                        std::string_view call,
                        int32_t code,
                        const void* made) {
  if (code != PLEXUS_OK) {
    return make_error(context, call, code);
  }
  if (made == nullptr) {
    return fail(
        Code::kInternalError,
        "collnet plugin {}: {} returned PLEXUS_OK but no handle; this is a bug in the plugin",
        context.plugin->name, call);
  }
  return ok();
}

Result<std::string> check_name(const char* text, const char* what) {
  const void* const end = text == nullptr ? nullptr : std::memchr(text, 0, PLEXUS_NAME_BYTES);
  const bool is_legal =
      end != nullptr && end != text &&
      std::all_of(text, static_cast<const char*>(end), [](char c) { return c >= ' ' && c <= '~'; });
  if (!is_legal) {
    return fail(Code::kInvalidUsage,
                "its {} is empty, too long or not printable; this is a bug in the plugin", what);
  }
  return std::string(text);
}

Result<void> check_entries(const plexus_collnet_ops_t& ops) {
  const struct {
    const char* name;
    bool is_there;
  } entries[] = {{"init", ops.init != nullptr},
                 {"finalize", ops.finalize != nullptr},
                 {"device_count", ops.device_count != nullptr},
                 {"properties", ops.properties != nullptr},
                 {"reduce_support", ops.reduce_support != nullptr},
                 {"listen", ops.listen != nullptr},
                 {"connect", ops.connect != nullptr},
                 {"register_memory", ops.register_memory != nullptr},
                 {"deregister", ops.deregister != nullptr},
                 {"iallreduce", ops.iallreduce != nullptr},
                 {"test", ops.test != nullptr},
                 {"close_group", ops.close_group != nullptr},
                 {"close_listen", ops.close_listen != nullptr}};
  for (const auto& entry : entries) {
    if (!entry.is_there) {
      return fail(Code::kInvalidUsage,
                  "its collnet table has no entry `{}`; this is a bug in the plugin", entry.name);
    }
  }
  return ok();
}

Result<void> read_devices(Context& context) {
  const plexus_collnet_ops_t& ops = context.plugin->ops;
  uint32_t count = 0;
  if (const int32_t code = call_entry(context, "device_count",
                                      [&] { return ops.device_count(context.raw, &count); });
      code != PLEXUS_OK) {
    return make_error(context, "device_count", code);
  }
  if (count > kNetDevicesMax) {
    return fail(Code::kInvalidUsage, "collnet plugin {} reports {} devices, expected at most {}",
                context.plugin->name, count, kNetDevicesMax);
  }
  for (uint32_t device = 0; device < count; ++device) {
    plexus_collnet_properties_t properties{};
    const int32_t code = call_entry(
        context, "properties", [&] { return ops.properties(context.raw, device, &properties); });
    if (code != PLEXUS_OK) {
      return make_error(context, "properties", code);
    }
    if (auto checked = check_collnet_properties(properties); checked.has_error()) {
      return std::move(checked).error().with_context(
          fmt::format("collnet plugin {} device {}", context.plugin->name, device));
    }
    context.devices.push_back(properties);
  }
  return ok();
}

}  // namespace

Result<void> check_collnet_properties(const plexus_collnet_properties_t& properties) {
  PLEXUS_TRY(check_name(properties.name, "device name"));
  if (properties.message_bytes_max == 0 ||
      properties.message_bytes_max > PLEXUS_NET_MESSAGE_BYTES_MAX) {
    return fail(Code::kInvalidUsage, "it reports message_bytes_max = {}, expected 1..{}",
                properties.message_bytes_max, PLEXUS_NET_MESSAGE_BYTES_MAX);
  }
  if ((properties.pointer_support & PLEXUS_MEMORY_HOST) == 0 || properties.requests_max == 0) {
    return fail(Code::kInvalidUsage,
                "it reports pointer_support = {} and requests_max = {}: it must support host "
                "memory and at least one request",
                properties.pointer_support, properties.requests_max);
  }
  return ok();
}

Result<CollnetPlugin> check_collnet_plugin(const plexus_collnet_plugin_t* plugin) {
  if (plugin == nullptr) {
    return fail(Code::kInvalidUsage, "it does not support this host (plugin ABI {}.{})",
                PLEXUS_ABI_MAJOR, PLEXUS_ABI_MINOR);
  }
  if (plugin->magic != PLEXUS_PLUGIN_MAGIC || plugin->abi_major != PLEXUS_ABI_MAJOR) {
    return fail(Code::kInvalidUsage, "it has plugin ABI {}.{} (magic {:#x}), expected {}.x",
                plugin->abi_major, plugin->abi_minor, plugin->magic, PLEXUS_ABI_MAJOR);
  }
  const bool has_table = plugin->struct_size >= sizeof(*plugin) && plugin->ops != nullptr;
  const uint32_t size_bytes = has_table ? plugin->ops->struct_size : 0;
  constexpr size_t kLeast = offsetof(plexus_collnet_ops_t, close_listen) + sizeof(void*);
  if (size_bytes < kLeast || size_bytes > kCollnetTableBytesMax) {
    return fail(Code::kInvalidUsage, "its collnet table has {} bytes, expected {} or more",
                size_bytes, kLeast);
  }
  CollnetPlugin checked;
  PLEXUS_TRY(name, check_name(plugin->name, "name"));
  PLEXUS_TRY(version, check_name(plugin->version, "version"));
  checked.name = std::move(name);
  checked.version = std::move(version);
  std::memcpy(&checked.ops, plugin->ops, std::min<size_t>(size_bytes, sizeof checked.ops));
  PLEXUS_TRY(check_entries(checked.ops));
  return checked;
}

/// A user who asks for encryption must not get a network that knows nothing of it.
static Result<void> check_security(const collnet_detail::Context& context) {
  constexpr const char* kName = "PLEXUS_NET_SECURITY";
  const std::lock_guard lock(context.mutex);
  if (setting_value(kName) != "tls" || context.answers.contains(kName)) {
    return ok();
  }
  return fail(Code::kInvalidUsage,
              "PLEXUS_NET_SECURITY=tls, but collnet plugin {} ({}) does not take that setting, so "
              "that it may send in clear: do without it (NCCL_COLLNET_ENABLE=0), or use auth where "
              "nobody else reaches the network",
              context.plugin->name, context.plugin->path.string());
}

Result<CollnetContext> CollnetContext::create(std::shared_ptr<const CollnetPlugin> plugin,
                                              uint64_t comm_id) {
  State state(new Context(std::move(plugin)));
  plexus_collnet_config_t config{};
  config.struct_size = sizeof config;
  config.comm_id = comm_id;
  config.log = &log_from_collnet;
  config.log_sink = reinterpret_cast<plexus_log_sink_t*>(state.get());
  config.setting = &collnet_detail::setting_for_collnet;
  const CollnetPlugin& used = *state->plugin;
  plexus_collnet_context_t* raw = nullptr;
  const int32_t code = call_entry(*state, "init", [&] {
    const WatchedCall watched({used.name, "init", {}});
    const auto lock = hold_environment();
    return used.origin != nullptr ? used.origin->init(&config, &raw) : used.ops.init(&config, &raw);
  });
  PLEXUS_TRY(check_made(*state, "init", code, raw));
  state->raw = raw;
  PLEXUS_TRY(check_security(*state));
  PLEXUS_TRY(read_devices(*state));
  return CollnetContext{std::move(state)};
}

const CollnetPlugin& CollnetContext::plugin() const noexcept { return *state_->plugin; }

std::span<const plexus_collnet_properties_t> CollnetContext::devices() const noexcept {
  return state_->devices;
}

Result<bool> CollnetContext::supports(int32_t type, int32_t op) const {
  uint32_t supported = 0;
  const int32_t code = call_entry(*state_, "reduce_support", [&] {
    return state_->plugin->ops.reduce_support(state_->raw, type, op, &supported);
  });
  if (code != PLEXUS_OK) {
    return make_error(*state_, "reduce_support", code);
  }
  return supported != 0;
}

Result<CollnetListen> CollnetContext::listen(uint32_t device) const {
  PLEXUS_DCHECK(device < devices().size(), device, devices().size());
  plexus_collnet_listen_t* raw = nullptr;
  plexus_net_handle_t handle{};
  const WatchedCall watched({state_->plugin->name, "listen", {}});
  const int32_t code = call_entry(*state_, "listen", [&] {
    return state_->plugin->ops.listen(state_->raw, device, &handle, &raw);
  });
  PLEXUS_TRY(check_made(*state_, "listen", code, raw));
  return CollnetListen{state_.get(), raw, handle};
}

CollnetListen::~CollnetListen() {
  if (raw_ != nullptr) {
    collnet_detail::end_use(*context_, "close_listen", {},
                            [&] { context_->plugin->ops.close_listen(raw_); });
  }
}

CollnetGroup::~CollnetGroup() {
  if (raw_ != nullptr) {
    collnet_detail::end_use(*listen_.context_, "close_group", "the group",
                            [&] { listen_.context_->plugin->ops.close_group(raw_); });
  }
}

Result<NetProgress> CollnetGroup::try_connect() {
  const Context& context = *listen_.context_;
  const WatchedCall watched({context.plugin->name, "connect", "the group"});
  const int32_t code = call_entry(context, "connect", [&] {
    return context.plugin->ops.connect(listen_.raw_, handles_.data(),
                                       static_cast<uint32_t>(handles_.size()), member_, &raw_);
  });
  if (code == PLEXUS_AGAIN) {
    return NetProgress::kPending;
  }
  PLEXUS_TRY(check_made(context, "connect", code, raw_));
  return NetProgress::kDone;
}

Result<CollnetMemory> CollnetGroup::register_memory(const plexus_net_region_t& region) {
  const Context& context = *listen_.context_;
  plexus_collnet_memory_t* raw = nullptr;
  const WatchedCall watched({context.plugin->name, "register_memory", "the group"});
  const int32_t code = call_entry(context, "register_memory", [&] {
    return context.plugin->ops.register_memory(raw_, &region, &raw);
  });
  if (code != PLEXUS_OK) {
    return make_error(context, "register_memory", code);
  }
  return CollnetMemory{&context.plugin->ops, raw};
}

NetStatus CollnetGroup::iallreduce(const plexus_collnet_reduction_t& reduction,
                                   plexus_collnet_request_t** request) noexcept {
  PLEXUS_DCHECK(raw_ != nullptr);
  *request = nullptr;
  const Context& context = *listen_.context_;
  return NetStatus{call_entry(context, "iallreduce", [&] {
    return context.plugin->ops.iallreduce(raw_, &reduction, request);
  })};
}

NetStatus CollnetGroup::test(plexus_collnet_request_t* request) noexcept {
  const Context& context = *listen_.context_;
  return NetStatus{call_entry(context, "test", [&] { return context.plugin->ops.test(request); })};
}

Error CollnetGroup::explain(std::string_view call, NetStatus status) const {
  return make_error(*listen_.context_, call, static_cast<int32_t>(status));
}

}  // namespace plexus
