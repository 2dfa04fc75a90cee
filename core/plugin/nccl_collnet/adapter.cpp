// SPDX-License-Identifier: Apache-2.0
#include "core/plugin/nccl_collnet/adapter.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <mutex>
#include <vector>

#include "core/base/thread.hpp"
#include "core/plugin/nccl_collnet/table.hpp"
#include "core/plugin/nccl_net/call.hpp"
#include "core/plugin/nccl_table.hpp"

namespace plexus::nccl_collnet {
namespace {

using nccl_net::call_vendor;
using nccl_net::give_to_host;
using nccl_net::LogScope;
using nccl_net::LogTarget;
using nccl_net::report;
using nccl_net::take_from_host;

/// One loaded library. Threads: any; init, devices and properties run one at a time, as under NCCL.
class Vendor final : public CollnetOrigin, public std::enable_shared_from_this<Vendor> {
 public:
  explicit Vendor(std::unique_ptr<const Collnet> collnet) : collnet_(std::move(collnet)) {}
  [[nodiscard]] int32_t init(const plexus_collnet_config_t* config,
                             plexus_collnet_context_t** context) const override;
  void finalize(void* context, const LogTarget& log) const;
  [[nodiscard]] const Collnet& collnet() const noexcept { return *collnet_; }

 private:
  std::unique_ptr<const Collnet> collnet_;
  mutable std::mutex mutex_;
  mutable bool is_initialised_ = false;  // guarded by mutex_; process-once plugins only
};

/// A connect in progress, in a thread that may outlive the handle that started it.
struct Connecting {
  std::shared_ptr<const Vendor> vendor;
  void* listen = nullptr;
  std::vector<std::array<uint8_t, NCCL_HANDLE_BYTES>> handles;
  int member = 0;
  std::mutex mutex;
  bool is_done = false;       // guarded by mutex
  bool is_abandoned = false;  // guarded by mutex: the thread closes its group when connected
  int32_t code = PLEXUS_OK;   // guarded by mutex
  std::string reason;         // guarded by mutex
  void* group = nullptr;      // guarded by mutex
};

}  // namespace
}  // namespace plexus::nccl_collnet

// The C structs behind the handles that the core holds.

struct plexus_collnet_context {
  std::shared_ptr<const plexus::nccl_collnet::Vendor> vendor;
  plexus::nccl_collnet::LogTarget log;
  void* raw = nullptr;
  [[nodiscard]] const plexus::nccl_collnet::Collnet& collnet() const noexcept {
    return vendor->collnet();
  }
};

struct plexus_collnet_listen {
  plexus_collnet_context* context;
  void* raw;
  bool is_taken = false;  // by a connect that has not returned: never closed
};

struct plexus_collnet_request {
  plexus_collnet_group* group = nullptr;
  void* raw = nullptr;
};

struct plexus_collnet_group {
  plexus_collnet_context* context;
  plexus_collnet_listen* listen;
  std::shared_ptr<plexus::nccl_collnet::Connecting> connecting;
  void* raw = nullptr;
  std::array<plexus_collnet_request, plexus::nccl_collnet::kRequests> requests{};
};

struct plexus_collnet_memory {
  plexus_collnet_group* group;
  void* raw;
};

namespace plexus::nccl_collnet {
namespace {

int32_t Vendor::init(const plexus_collnet_config_t* config,
                     plexus_collnet_context_t** context) const {
  auto made = std::unique_ptr<plexus_collnet_context>(
      new plexus_collnet_context{shared_from_this(), {config->log, config->log_sink}, nullptr});
  const std::lock_guard lock(mutex_);
  const auto report_missing = [&](const char* entry) {
    return report(made->log,
                  fail(Code::kInvalidUsage,
                       "its table has no entry `{}`; this is a bug in the plugin", entry));
  };
  // Entries besides init may be filled in by init.
  if (const char* const missing = collnet_->find_missing_entry();
      missing != nullptr && std::string_view(missing) == "init") {
    return report_missing(missing);
  }
  if (collnet_->is_per_communicator() || !is_initialised_) {
    const int32_t code =
        call_vendor(made->log, "init", [&] { return collnet_->init(&made->raw, config->comm_id); });
    if (code != PLEXUS_OK) {
      return code;
    }
    is_initialised_ = true;
  }
  if (const char* const missing = collnet_->find_missing_entry(); missing != nullptr) {
    collnet_->finalize(made->raw);
    return report_missing(missing);
  }
  *context = give_to_host(std::move(made));
  return PLEXUS_OK;
}

void Vendor::finalize(void* context, const LogTarget& log) const {
  const std::lock_guard lock(mutex_);
  const LogScope scope(log);
  collnet_->finalize(context);
}

void finalize(plexus_collnet_context_t* context) {
  context->vendor->finalize(context->raw, context->log);
  take_from_host(context);
}

int32_t device_count(plexus_collnet_context_t* context, uint32_t* count) {
  int found = 0;
  const int32_t code =
      call_vendor(context->log, "devices", [&] { return context->collnet().devices(found); });
  if (code == PLEXUS_OK && found < 0) {
    return report(context->log, fail(Code::kInvalidUsage,
                                     "it reports {} devices; this is a bug in the plugin", found));
  }
  *count = static_cast<uint32_t>(std::max(found, 0));
  return code;
}

int32_t properties(plexus_collnet_context_t* context,
                   uint32_t device,
                   plexus_collnet_properties_t* result) {
  return call_vendor(context->log, "getProperties", [&] {
    return context->collnet().get_properties(static_cast<int>(device), *result);
  });
}

int32_t reduce_support(plexus_collnet_context_t* context,
                       int32_t type,
                       int32_t op,
                       uint32_t* supported) {
  int answer = 0;
  const int32_t code = call_vendor(context->log, "reduceSupport", [&] {
    return context->collnet().reduce_support(type, op, answer);
  });
  *supported = answer != 0 ? 1 : 0;
  return code;
}

int32_t start_listening(plexus_collnet_context_t* context,
                        uint32_t device,
                        plexus_net_handle_t* handle,
                        plexus_collnet_listen_t** listen) {
  alignas(16) std::array<uint8_t, NCCL_HANDLE_BYTES> bytes{};
  void* raw = nullptr;
  const int32_t code = call_vendor(context->log, "listen", [&] {
    return context->collnet().listen(context->raw, static_cast<int>(device), bytes.data(), &raw);
  });
  if (code != PLEXUS_OK) {
    return code;
  }
  if (raw == nullptr) {
    return report(context->log,
                  fail(Code::kInternalError,
                       "its listen succeeded without a listenComm; this is a bug in the plugin"));
  }
  std::copy(bytes.begin(), bytes.end(), handle->bytes);
  *listen =
      give_to_host(std::unique_ptr<plexus_collnet_listen>(new plexus_collnet_listen{context, raw}));
  return PLEXUS_OK;
}

/// Keeps the reason of a failure for the thread that asks for it.
void keep_reason(
    plexus_log_sink_t* sink, int32_t level, const char*, int32_t, const char* text) noexcept {
  if (level == PLEXUS_LOG_ERROR) {
    *reinterpret_cast<std::string*>(sink) = text;
  }
}

void end_connect(Connecting& connecting, int32_t code, std::string reason, void* group) noexcept {
  const Collnet& collnet = connecting.vendor->collnet();
  const std::lock_guard lock(connecting.mutex);
  connecting.is_done = true;
  connecting.code = code;
  connecting.reason = std::move(reason);
  connecting.group = group;
  if (connecting.is_abandoned) {
    (void)guarded([&] {
      if (group != nullptr) {
        collnet.close_group(group);
      }
      collnet.close_listen(connecting.listen);
      return PLEXUS_OK;
    });
  }
}

/// The body of a thread.
void run_connect(const std::shared_ptr<Connecting>& connecting) {
  std::vector<void*> handles;
  for (auto& handle : connecting->handles) {
    handles.push_back(handle.data());
  }
  const Collnet& collnet = connecting->vendor->collnet();
  std::string reason;
  void* group = nullptr;
  const LogTarget log{&keep_reason, reinterpret_cast<plexus_log_sink_t*>(&reason)};
  const int32_t code = call_vendor(log, "connect", [&] {
    return collnet.connect(handles.data(), static_cast<int>(handles.size()), connecting->member,
                           connecting->listen, &group);
  });
  end_connect(*connecting, code, std::move(reason), group);
}

int32_t look_at_connect(plexus_collnet_group& group) {
  Connecting& connecting = *group.connecting;
  const std::lock_guard lock(connecting.mutex);
  if (!connecting.is_done) {
    return PLEXUS_AGAIN;
  }
  group.raw = connecting.group;
  if (connecting.code != PLEXUS_OK) {
    group.context->log.error(connecting.reason);
    return connecting.code;
  }
  if (group.raw == nullptr) {
    return report(group.context->log,
                  fail(Code::kInternalError,
                       "its connect succeeded without a collComm; this is a bug in the plugin"));
  }
  return PLEXUS_OK;
}

int32_t connect(plexus_collnet_listen_t* listen,
                const plexus_net_handle_t* handles,
                uint32_t members,
                uint32_t member,
                plexus_collnet_group_t** group) {
  if (*group == nullptr) {
    auto connecting = std::make_shared<Connecting>();
    connecting->vendor = listen->context->vendor;
    connecting->listen = listen->raw;
    connecting->member = static_cast<int>(member);
    connecting->handles.resize(members);
    for (uint32_t i = 0; i < members; ++i) {
      std::copy(std::begin(handles[i].bytes), std::end(handles[i].bytes),
                connecting->handles[i].begin());
    }
    auto made = std::unique_ptr<plexus_collnet_group>(
        new plexus_collnet_group{listen->context, listen, connecting});
    auto thread = start_thread("a collnet plugin's connect", [connecting] {
      const int32_t code = guarded([&] {
        run_connect(connecting);
        return PLEXUS_OK;
      });
      if (code != PLEXUS_OK) {
        end_connect(*connecting, code, "its connect threw an exception", nullptr);
      }
    });
    if (thread.has_error()) {
      return report(listen->context->log, thread.error());
    }
    thread.value().detach();
    *group = give_to_host(std::move(made));
  }
  return look_at_connect(**group);
}

int32_t register_memory(plexus_collnet_group_t* group,
                        const plexus_net_region_t* region,
                        plexus_collnet_memory_t** memory) {
  const plexus_collnet_context& context = *group->context;
  if (const uint64_t most = context.collnet().region_bytes_max(); region->size_bytes > most) {
    return report(context.log, fail(Code::kInvalidUsage,
                                    "this ABI version registers at most {} bytes at once, {} were "
                                    "requested; lower NCCL_BUFFSIZE or use a newer plugin",
                                    most, region->size_bytes));
  }
  auto made = std::unique_ptr<plexus_collnet_memory>(new plexus_collnet_memory{group, nullptr});
  const int32_t code = call_vendor(context.log, "regMr", [&] {
    return context.collnet().register_memory(group->raw, region->data, region->size_bytes,
                                             &made->raw);
  });
  if (code == PLEXUS_OK) {
    *memory = give_to_host(std::move(made));
  }
  return code;
}

int32_t deregister(plexus_collnet_memory_t* memory) {
  const plexus_collnet_group& group = *memory->group;
  const int32_t code = call_vendor(group.context->log, "deregMr", [&] {
    return group.context->collnet().deregister(group.raw, memory->raw);
  });
  take_from_host(memory);
  return code;
}

int32_t iallreduce(plexus_collnet_group_t* group,
                   const plexus_collnet_reduction_t* reduction,
                   plexus_collnet_request_t** request) {
  const plexus_collnet_context& context = *group->context;
  auto* const free =
      std::find_if(group->requests.begin(), group->requests.end(),
                   [](const plexus_collnet_request& each) { return each.raw == nullptr; });
  if (free == group->requests.end()) {
    return PLEXUS_AGAIN;
  }
  if (reduction->count > context.collnet().count_max()) {
    return report(context.log, fail(Code::kInvalidUsage,
                                    "it reduces at most {} elements at once, {} were requested",
                                    context.collnet().count_max(), reduction->count));
  }
  void* const send = reduction->send_memory == nullptr ? nullptr : reduction->send_memory->raw;
  void* const recv = reduction->recv_memory == nullptr ? nullptr : reduction->recv_memory->raw;
  void* raw = nullptr;
  const int32_t code = call_vendor(context.log, "iallreduce", [&] {
    return context.collnet().iallreduce(group->raw, *reduction, send, recv, &raw);
  });
  if (code != PLEXUS_OK || raw == nullptr) {  // no request: nothing was started
    return code == PLEXUS_OK ? PLEXUS_AGAIN : code;
  }
  *free = {group, raw};
  *request = free;
  return PLEXUS_OK;
}

int32_t test(plexus_collnet_request_t* request) {
  const plexus_collnet_context& context = *request->group->context;
  int is_done = 0;
  int size = 0;
  const int32_t code = call_vendor(
      context.log, "test", [&] { return context.collnet().test(request->raw, is_done, size); });
  if (code == PLEXUS_OK && is_done == 0) {
    return PLEXUS_AGAIN;
  }
  request->raw = nullptr;
  return code;
}

void close_group(plexus_collnet_group_t* group) {
  {
    Connecting& connecting = *group->connecting;
    const std::lock_guard lock(connecting.mutex);
    if (!connecting.is_done) {
      connecting.is_abandoned = true;
      group->listen->is_taken = true;
    } else if (connecting.group != nullptr) {
      group->context->collnet().close_group(connecting.group);
    }
  }
  take_from_host(group);
}

void close_listen(plexus_collnet_listen_t* listen) {
  if (!listen->is_taken) {
    listen->context->collnet().close_listen(listen->raw);
  }
  take_from_host(listen);
}

constexpr plexus_collnet_ops_t kOps = {
    .struct_size = sizeof(plexus_collnet_ops_t),
    .reserved = 0,
    .init = nullptr,  // CollnetOrigin replaces it
    .finalize = finalize,
    .device_count = device_count,
    .properties = properties,
    .reduce_support = reduce_support,
    .listen = start_listening,
    .connect = connect,
    .register_memory = register_memory,
    .deregister = deregister,
    .iallreduce = iallreduce,
    .test = test,
    .close_group = close_group,
    .close_listen = close_listen,
};

template <class Table, class Properties>
std::unique_ptr<const Collnet> make(const void* table) {
  return std::make_unique<const TableCollnet<Table, Properties>>(table);
}

struct Version {
  size_t table_bytes;
  std::unique_ptr<const Collnet> (*make)(const void* table);
};
/// The supported versions, starting with kVersionLeast.
constexpr std::array<Version, kVersionMost - kVersionLeast + 1> kVersions = {{
    {sizeof(nccl_collnet_v6_t), &make<nccl_collnet_v6_t, nccl_net_properties_v6_t>},
    {sizeof(nccl_collnet_v7_t), &make<nccl_collnet_v7_t, nccl_net_properties_v7_t>},
    {sizeof(nccl_collnet_v8_t), &make<nccl_collnet_v8_t, nccl_net_properties_v8_t>},
    {sizeof(nccl_collnet_v9_t), &make<nccl_collnet_v9_t, nccl_net_properties_v9_t>},
    {sizeof(nccl_collnet_v10_t), &make<nccl_collnet_v10_t, nccl_net_properties_v10_t>},
    {sizeof(nccl_collnet_v11_t), &make<nccl_collnet_v11_t, nccl_net_properties_v11_t>},
    {sizeof(nccl_collnet_v12_t), &make<nccl_collnet_v12_t, nccl_net_properties_v12_t>},
}};
constexpr Version kCrossDc = {
    sizeof(nccl_collnet_v11_cross_dc_t),
    &make<nccl_collnet_v11_cross_dc_t, nccl_net_properties_v11_cross_dc_t>};
constexpr int kForked = 11;  // two different ABIs have this version

/// The two v11 collnet tables have equal sizes; the size of the library's net table decides.
bool is_cross_dc(const Library& library, int version) {
  const auto net = version == kForked ? library.find_object("ncclNetPlugin_v11") : std::nullopt;
  return net.has_value() && net->size_bytes == sizeof(nccl_net_v11_cross_dc_t);
}

}  // namespace

Result<std::shared_ptr<const CollnetPlugin>> adapt(const Library& library) {
  const auto table = find_newest_table(library, "ncclCollNetPlugin", {kVersionLeast, kVersionMost});
  if (!table.has_value()) {
    return std::shared_ptr<const CollnetPlugin>();
  }
  const Version& chosen = is_cross_dc(library, table->version)
                              ? kCrossDc
                              : kVersions[static_cast<size_t>(table->version - kVersionLeast)];
  PLEXUS_TRY(table->check_size(chosen.table_bytes));
  auto collnet = chosen.make(table->object.address);
  CollnetPlugin plugin;
  plugin.path = library.path();
  plugin.name = collnet->name() == nullptr ? "unnamed" : collnet->name();
  plugin.version = table->symbol;
  plugin.ops = kOps;
  plugin.origin = std::make_shared<const Vendor>(std::move(collnet));
  return std::make_shared<const CollnetPlugin>(std::move(plugin));
}

}  // namespace plexus::nccl_collnet
