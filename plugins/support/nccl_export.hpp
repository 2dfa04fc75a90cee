// SPDX-License-Identifier: Apache-2.0
// Exports a native net plugin (a plexus_net_ops_t) to NCCL as well: PLEXUS_EXPORT_NCCL_NET(kOps,
// name), a part of PLEXUS_NET_PLUGIN, defines ncclNetPlugin_v6 to v12, so that NCCL loads the
// library like any vendor's.
//
//   NCCL                                    native
//   init once per process (v6 to v10)       one context for the process, never finalized
//   init, finalize per communicator (v11+)  a context each; devices are asked of the process's
//   connect again with the same handle      the handle is kept here; its buffer then says which
//   success with a null object or request   PLEXUS_AGAIN
//
// Threads: as plexus_net.h; init and devices are serialised here. The process's state is one object
// in a function, because NCCL's devices() and getProperties() have no argument to find it by.
#pragma once

#include <algorithm>
#include <memory>
#include <mutex>
#include <vector>

#include "plugin-api/nccl/net_v10.h"
#include "plugin-api/nccl/net_v11.h"
#include "plugin-api/nccl/net_v12.h"
#include "plugin-api/nccl/net_v6.h"
#include "plugin-api/nccl/net_v7.h"
#include "plugin-api/nccl/net_v8.h"
#include "plugin-api/nccl/net_v9.h"
#include "plugin-api/plexus_net.h"

#include "plugins/support/nccl_connection.hpp"

namespace plexus::plugin::nccl_export {

// ---- devices ----

template <class Properties>
void fill_common(const plexus_net_properties_t& from, int device, Properties& to) {
  to = {};
  to.name = from.name;
  to.pci_path = from.pci_path[0] == '\0' ? nullptr : from.pci_path;
  // NCCL takes devices with equal guids for ports of one NIC, and has no value for "unknown".
  to.guid = from.guid == PLEXUS_UNKNOWN_U64 ? static_cast<uint64_t>(device) + 1 : from.guid;
  to.pointer_support = static_cast<int>(from.pointer_support);
  to.speed =
      from.speed_mbit_per_s == PLEXUS_UNKNOWN_U32 ? 0 : static_cast<int>(from.speed_mbit_per_s);
  to.port = static_cast<int>(from.port);
  constexpr float kUsPerNs = 1e-3F;
  to.latency =
      from.latency_ns == PLEXUS_UNKNOWN_U32 ? 0.0F : static_cast<float>(from.latency_ns) * kUsPerNs;
  to.comms_max = static_cast<int>(std::min<uint32_t>(from.comms_max, INT32_MAX));
  to.recvs_max = static_cast<int>(from.recvs_max);
}

template <class Properties>
void fill_properties(const plexus_net_properties_t& from, int device, Properties& to) {
  fill_common(from, device, to);
  if constexpr (requires { to.registration_is_global; }) {
    to.registration_is_global = static_cast<int>(from.registration_is_global);
  }
  if constexpr (requires { to.parts; }) {
    to.force_flush = static_cast<int>(from.force_flush);
    to.parts.count = 1;
    to.parts.devices[0] = device;
    to.p2p_bytes_max = from.message_bytes_max;
    to.coll_bytes_max = from.message_bytes_max;
  }
  if constexpr (requires { to.multi_request_max; }) {
    to.multi_request_max = 1;
  }
  if constexpr (requires { to.rail_id; }) {
    to.rail_id = static_cast<int16_t>(from.rail_id);
    to.plane_id = static_cast<int16_t>(from.plane_id);
  }
}

/// State of one plugin in one process. Threads: any.
class Process {
 public:
  explicit Process(const plexus_net_ops_t& ops) : ops_(&ops) {}

  /// Makes the process's context and reads its devices on the first call.
  [[nodiscard]] int32_t init(nccl_log_fn log) {
    const std::scoped_lock lock(mutex_);
    if (context_ != nullptr) {
      return PLEXUS_OK;
    }
    auto made = std::make_unique<Context>(Context{ops_, {log}});
    if (const int32_t code = made->open(0, -1); code != PLEXUS_OK) {
      return code;
    }
    uint32_t count = 0;
    int32_t code = ops_->device_count(made->raw, &count);
    std::vector<plexus_net_properties_t> devices(count);
    for (uint32_t device = 0; device < count && code == PLEXUS_OK; ++device) {
      code = ops_->properties(made->raw, device, &devices[device]);
    }
    if (code != PLEXUS_OK) {
      ops_->finalize(made->raw);
      return code;
    }
    devices_ = std::move(devices);
    context_ = std::move(made);
    return PLEXUS_OK;
  }
  [[nodiscard]] int32_t init_comm(void** context,
                                  uint64_t comm_id,
                                  const nccl_comm_config_t* config,
                                  nccl_log_fn log) {
    if (const int32_t code = init(log); code != PLEXUS_OK) {
      return code;
    }
    auto made = std::make_unique<Context>(Context{ops_, {log}});
    const int32_t code = made->open(comm_id, config == nullptr ? -1 : config->traffic_class);
    if (code == PLEXUS_OK) {
      *context = give_to_nccl(std::move(made));
    }
    return code;
  }
  [[nodiscard]] static int32_t finalize(void* context) {
    const auto& made = *static_cast<Context*>(context);
    made.ops->finalize(made.raw);
    take_from_nccl<Context>(context);
    return PLEXUS_OK;
  }
  /// Requires init().
  [[nodiscard]] Context& context() noexcept { return *context_; }
  [[nodiscard]] const std::vector<plexus_net_properties_t>& devices() const noexcept {
    return devices_;
  }

 private:
  const plexus_net_ops_t* ops_;
  std::mutex mutex_;
  std::unique_ptr<Context> context_;              // guarded by mutex_ until init succeeded
  std::vector<plexus_net_properties_t> devices_;  // guarded by mutex_ until init succeeded
};

// ---- the tables ----

template <const plexus_net_ops_t& kOps>
struct Tables {
  /// Never destroyed, because NCCL may call from threads that outlive main().
  static Process& process() {
    // NOLINTNEXTLINE(*-avoid-non-const-global-variables): NCCL's v6 to v10 have no context
    static Process& state = *give_to_nccl(std::make_unique<Process>(kOps));
    return state;
  }
  template <class Body>
  static int32_t at_boundary(nccl_log_fn log, Body&& body) noexcept {
    Host host{log};
    return guard(Log(&write_line, reinterpret_cast<plexus_log_sink_t*>(&host)), body);
  }
  static int32_t init(nccl_log_fn log) {
    return at_boundary(log, [&] { return process().init(log); });
  }
  static int32_t init(nccl_log_fn log, nccl_profiler_fn) { return init(log); }
  static int32_t init(void** context,
                      uint64_t comm_id,
                      nccl_comm_config_t* config,
                      nccl_log_fn log,
                      nccl_profiler_fn) {
    return at_boundary(log, [&] { return process().init_comm(context, comm_id, config, log); });
  }
  static int32_t devices(int* count) {
    *count = static_cast<int>(process().devices().size());
    return PLEXUS_OK;
  }
  template <class Properties>
  static int32_t get_properties(int device, Properties* properties) {
    const auto& devices = process().devices();
    if (device < 0 || static_cast<size_t>(device) >= devices.size()) {
      return PLEXUS_INVALID_ARGUMENT;
    }
    fill_properties(devices[static_cast<size_t>(device)], device, *properties);
    return PLEXUS_OK;
  }
  static int32_t listen(int device, void* handle, void** out) {
    return nccl_export::listen(process().context(), device, handle, out);
  }
  static int32_t listen(void* context, int device, void* handle, void** out) {
    return nccl_export::listen(*static_cast<Context*>(context), device, handle, out);
  }
  static int32_t connect(int device, void* handle, void** out) {
    return nccl_export::connect(process().context(), device, handle, out);
  }
  static int32_t connect(int device, void* handle, void** out, nccl_device_handle_t**) {
    return nccl_export::connect(process().context(), device, handle, out);
  }
  static int32_t connect(
      int device, nccl_comm_config_t*, void* handle, void** out, nccl_device_handle_t**) {
    return nccl_export::connect(process().context(), device, handle, out);
  }
  static int32_t connect(
      void* context, int device, void* handle, void** out, nccl_device_handle_t**) {
    return nccl_export::connect(*static_cast<Context*>(context), device, handle, out);
  }

  /// The table of any version: of overloads the type of its entry chooses.
  template <class Table>
  static constexpr Table make(const char* name) {
    Table table{};
    table.name = name;
    table.init = &init;
    table.devices = &devices;
    table.get_properties = &get_properties;
    table.listen = &listen;
    table.connect = &connect;
    table.accept = &accept;
    table.register_memory = &register_memory;
    table.register_dmabuf = &register_dmabuf;
    table.deregister = &deregister;
    table.isend = &isend;
    table.irecv = &irecv;
    table.iflush = &iflush;
    table.test = &test;
    table.close_send = &close_send;
    table.close_recv = &close_recv;
    table.close_listen = &close_listen;
    if constexpr (requires { table.finalize; }) {
      table.finalize = &Process::finalize;
    }
    return table;
  }
};

}  // namespace plexus::plugin::nccl_export

/// A table of NCCL's ABI `version`.
#define PLEXUS_EXPORT_NCCL_TABLE(version, ops, name)                                \
  extern PLEXUS_PLUGIN_EXPORT const nccl_net_##version##_t ncclNetPlugin_##version; \
  constexpr nccl_net_##version##_t ncclNetPlugin_##version =                        \
      ::plexus::plugin::nccl_export::Tables<ops>::make<nccl_net_##version##_t>(name);

/// For a plugin's .cpp, outside of namespaces. `ops`: a plexus_net_ops_t with static storage.
#define PLEXUS_EXPORT_NCCL_NET(ops, name)  \
  extern "C" {                             \
  PLEXUS_EXPORT_NCCL_TABLE(v6, ops, name)  \
  PLEXUS_EXPORT_NCCL_TABLE(v7, ops, name)  \
  PLEXUS_EXPORT_NCCL_TABLE(v8, ops, name)  \
  PLEXUS_EXPORT_NCCL_TABLE(v9, ops, name)  \
  PLEXUS_EXPORT_NCCL_TABLE(v10, ops, name) \
  PLEXUS_EXPORT_NCCL_TABLE(v11, ops, name) \
  PLEXUS_EXPORT_NCCL_TABLE(v12, ops, name) \
  }
