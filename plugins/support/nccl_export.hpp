// SPDX-License-Identifier: Apache-2.0
// Shows a native net plugin (a plexus_net_ops_t) to NCCL as well: PLEXUS_EXPORT_NCCL_NET(kOps,
// name) defines ncclNetPlugin_v8 to v12, so that stock NCCL loads the library as any vendor's.
//
//   NCCL                                    native
//   init once per process (v8 to v10)       one context for the process, never finalized
//   init, finalize per communicator (v11+)  a context each; devices are asked of the process's
//   connect again with the same handle      the handle is kept here; its buffer then says which
//   success with a null object or request   PLEXUS_AGAIN
//
// Threads: as plexus_net.h; init and devices are serialised here. The state of the process is one
// object in a function: NCCL's devices() and getProperties() have no argument to find it by.
#pragma once

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <mutex>
#include <sys/random.h>
#include <vector>

#include "plugin-api/nccl/net_v10.h"
#include "plugin-api/nccl/net_v11.h"
#include "plugin-api/nccl/net_v12.h"
#include "plugin-api/nccl/net_v8.h"
#include "plugin-api/nccl/net_v9.h"
#include "plugin-api/plexus_net.h"

#include "plugins/support/wall.hpp"

namespace plexus::plugin::nccl_export {

// ---- the host that the plugin sees ----

/// What the plugin's `log_sink` is here.
struct Host {
  nccl_log_fn log;
};

inline void write_line(
    plexus_log_sink_t* sink, int32_t level, const char* file, int32_t line, const char* text) {
  const int nccl_level = level == PLEXUS_LOG_ERROR ? NCCL_LOG_WARN : level;
  reinterpret_cast<const Host*>(sink)->log(nccl_level, NCCL_LOG_SUBSYSTEM_NET, file, line, "%s",
                                           text);
}

struct Context {
  const plexus_net_ops_t* ops;
  Host host;
  plexus_net_context_t* raw = nullptr;

  [[nodiscard]] Log log() { return {&write_line, reinterpret_cast<plexus_log_sink_t*>(&host)}; }
  [[nodiscard]] int32_t open(uint64_t comm_id, int traffic_class) {
    const plexus_net_config_t config = {sizeof config,
                                        traffic_class,
                                        comm_id,
                                        &write_line,
                                        reinterpret_cast<plexus_log_sink_t*>(&host),
                                        nullptr};
    return ops->init(&config, &raw);
  }
};

// ---- connections and requests ----

struct Connection;

struct Request {
  Connection* connection = nullptr;
  plexus_net_request_t* raw = nullptr;
  uint32_t count = 0;  // sizes that test() reports
};

/// What a sendComm or recvComm points to.
struct Connection {
  explicit Connection(Context& owner) : context(&owner) {}
  void make_requests(size_t count) {
    requests = std::vector<Request>(count);
    for (Request& request : requests) {
      request.connection = this;
      free.push_back(&request);
    }
  }
  Context* context;
  plexus_net_send_t* send = nullptr;  // one of the two is set
  plexus_net_recv_t* recv = nullptr;
  plexus_net_handle_t handle{};  // while connecting
  std::vector<Request> requests;
  std::vector<Request*> free;  // its room is never exceeded: nothing allocates in use
};
struct Listener {
  Context* context;
  plexus_net_listen_t* raw;
};

inline constexpr size_t kReceivesInFlight = size_t{2} * NCCL_REQUESTS_MAX;  // and flushes
inline constexpr size_t kSendsInFlight = size_t{NCCL_REQUESTS_MAX} * PLEXUS_NET_RECVS_MAX;

template <class T>
T* give_to_nccl(std::unique_ptr<T> owner) {
  return owner.release();
}
template <class T>
void take_from_nccl(void* handle) {
  const std::unique_ptr<T> owner(static_cast<T*>(handle));
}

/// A connect that is under way leaves this in NCCL's copy of the handle. The token is of this
/// process and secret: bytes that a peer sends can not be taken for it.
struct Ticket {
  std::array<uint8_t, 16> token;
  Connection* connection;
};
static_assert(sizeof(Ticket) <= NCCL_HANDLE_BYTES);

inline const std::array<uint8_t, 16>& own_token() {
  static const auto kToken = [] {
    std::array<uint8_t, 16> bytes{};
    for (size_t done = 0; done < bytes.size();) {
      const ssize_t got = ::getrandom(bytes.data() + done, bytes.size() - done, 0);
      done += got > 0 ? static_cast<size_t>(got) : 0;
    }
    return bytes;
  }();
  return kToken;
}

/// Nothing allocates behind the wall of these but what is written.
inline int32_t listen(Context& context, int device, void* handle, void** out) {
  return guard(context.log(), [&]() -> int32_t {
    auto made = std::make_unique<Listener>(Listener{&context, nullptr});
    plexus_net_handle_t bytes{};
    const int32_t code =
        context.ops->listen(context.raw, static_cast<uint32_t>(device), &bytes, &made->raw);
    if (code == PLEXUS_OK) {
      std::memcpy(handle, &bytes, sizeof bytes);
      *out = give_to_nccl(std::move(made));
    }
    return code;
  });
}

inline void close_send_now(Connection& connection) {
  if (connection.send != nullptr) {
    connection.context->ops->close_send(connection.send);
  }
}

inline int32_t connect(Context& context, int device, void* handle, void** out) {
  *out = nullptr;
  return guard(context.log(), [&]() -> int32_t {
    Ticket ticket{};
    std::memcpy(&ticket, handle, sizeof ticket);
    const bool is_under_way = ticket.token == own_token();
    auto connection = std::unique_ptr<Connection>(is_under_way ? ticket.connection : nullptr);
    if (!is_under_way) {
      connection = std::make_unique<Connection>(context);
      std::memcpy(&connection->handle, handle, sizeof connection->handle);
      connection->make_requests(kSendsInFlight);
    }
    const int32_t code = context.ops->connect(context.raw, static_cast<uint32_t>(device),
                                              &connection->handle, &connection->send);
    if (code == PLEXUS_OK) {
      *out = give_to_nccl(std::move(connection));
      return PLEXUS_OK;
    }
    if (code == PLEXUS_AGAIN) {
      ticket = {own_token(), give_to_nccl(std::move(connection))};
      std::memcpy(handle, &ticket, sizeof ticket);
      return PLEXUS_OK;
    }
    close_send_now(*connection);
    std::memset(handle, 0, sizeof ticket);  // the connection that it names is gone
    return code;
  });
}

inline int32_t accept(void* listener, void** out, nccl_device_handle_t**) {
  *out = nullptr;
  const Listener& from = *static_cast<const Listener*>(listener);
  return guard(from.context->log(), [&]() -> int32_t {
    auto made = std::make_unique<Connection>(*from.context);
    const int32_t code = from.context->ops->accept(from.raw, &made->recv);
    if (code == PLEXUS_OK) {
      made->make_requests(kReceivesInFlight);
      *out = give_to_nccl(std::move(made));
    } else if (made->recv != nullptr) {  // native plugins may keep a half-made one; NCCL cannot
      from.context->ops->close_recv(made->recv);
    }
    return code == PLEXUS_AGAIN ? PLEXUS_OK : code;
  });
}

inline int32_t close_send(void* send) {
  close_send_now(*static_cast<Connection*>(send));
  take_from_nccl<Connection>(send);
  return PLEXUS_OK;
}
inline int32_t close_recv(void* recv) {
  const auto& connection = *static_cast<Connection*>(recv);
  connection.context->ops->close_recv(connection.recv);
  take_from_nccl<Connection>(recv);
  return PLEXUS_OK;
}
inline int32_t close_listen(void* listen) {
  const auto& listener = *static_cast<Listener*>(listen);
  listener.context->ops->close_listen(listener.raw);
  take_from_nccl<Listener>(listen);
  return PLEXUS_OK;
}

// ---- memory ----

inline int32_t register_region(void* comm, const plexus_net_region_t& region, void** memory) {
  const auto& connection = *static_cast<Connection*>(comm);
  plexus_net_memory_t* made = nullptr;
  const int32_t code =
      connection.send != nullptr
          ? connection.context->ops->register_send(connection.send, &region, &made)
          : connection.context->ops->register_recv(connection.recv, &region, &made);
  *memory = made;
  return code;
}
inline int32_t register_memory(void* comm, void* data, size_t size, int kind, void** memory) {
  return register_region(comm, {data, size, 0, -1, static_cast<uint32_t>(kind)}, memory);
}
// NOLINTBEGIN(readability-function-size): the parameters are NCCL's.
inline int32_t register_dmabuf(
    void* comm, void* data, size_t size, int, uint64_t offset, int fd, void** memory) {
  return register_region(comm, {data, size, offset, fd, PLEXUS_MEMORY_DMABUF}, memory);
}
inline int32_t deregister(void* comm, void* memory) {
  if (memory == nullptr) {
    return PLEXUS_OK;
  }
  return static_cast<Connection*>(comm)->context->ops->deregister(
      static_cast<plexus_net_memory_t*>(memory));
}

// ---- the data path ----

/// Ends a post: a null request is NCCL's "call again".
inline int32_t posted(
    Connection& connection, int32_t code, plexus_net_request_t* raw, uint32_t count, void** out) {
  if (code != PLEXUS_OK || raw == nullptr) {
    return code == PLEXUS_AGAIN ? PLEXUS_OK : code;
  }
  Request* const request = connection.free.back();
  connection.free.pop_back();
  request->raw = raw;
  request->count = count;
  *out = request;
  return PLEXUS_OK;
}

inline int32_t isend(void* comm, void* data, size_t size, int tag, void* memory, void** out) {
  auto& connection = *static_cast<Connection*>(comm);
  *out = nullptr;
  if (connection.free.empty()) {
    return PLEXUS_OK;
  }
  plexus_net_request_t* raw = nullptr;
  const int32_t code = connection.context->ops->isend(
      connection.send, data, size, tag, static_cast<plexus_net_memory_t*>(memory), &raw);
  return posted(connection, code, raw, 1, out);
}
inline int32_t isend_v6(void* comm, void* data, int size, int tag, void* memory, void** out) {
  return size < 0 ? PLEXUS_INVALID_ARGUMENT
                  : isend(comm, data, static_cast<size_t>(size), tag, memory, out);
}
inline int32_t isend_v10(
    void* comm, void* data, size_t size, int tag, void* memory, void*, void** out) {
  return isend(comm, data, size, tag, memory, out);
}

using PostBuffers = decltype(plexus_net_ops_t::irecv);

/// irecv and flush, whose sizes are int or size_t.
template <class Size>
int32_t post_buffers(Connection& connection,
                     PostBuffers post,
                     std::array<plexus_net_buffer_t, PLEXUS_NET_RECVS_MAX>& buffers,
                     int count,
                     const Size* sizes,
                     uint32_t reported,
                     void** out) {
  for (size_t i = 0; i < static_cast<size_t>(count); ++i) {
    buffers[i].size_bytes = static_cast<uint64_t>(sizes[i]);
  }
  plexus_net_request_t* raw = nullptr;
  const int32_t code = post(connection.recv, static_cast<uint32_t>(count), buffers.data(), &raw);
  return posted(connection, code, raw, reported, out);
}

/// False: more buffers than there can be.
inline bool fill_buffers(std::array<plexus_net_buffer_t, PLEXUS_NET_RECVS_MAX>& buffers,
                         int count,
                         void** data,
                         const int* tags,
                         void** memory) {
  if (count < 1 || static_cast<size_t>(count) > buffers.size()) {
    return false;
  }
  for (size_t i = 0; i < static_cast<size_t>(count); ++i) {
    buffers[i] = {data[i], 0,
                  memory == nullptr ? nullptr : static_cast<plexus_net_memory_t*>(memory[i]),
                  tags == nullptr ? 0 : tags[i], 0};
  }
  return true;
}

template <class Size>
int32_t irecv(
    void* comm, int count, void** data, Size* sizes, int* tags, void** memory, void** out) {
  auto& connection = *static_cast<Connection*>(comm);
  *out = nullptr;  // NCCL may have left its "may complete early" there
  std::array<plexus_net_buffer_t, PLEXUS_NET_RECVS_MAX> buffers{};
  if (!fill_buffers(buffers, count, data, tags, memory)) {
    return PLEXUS_INVALID_ARGUMENT;
  }
  if (connection.free.empty()) {
    return PLEXUS_OK;
  }
  return post_buffers(connection, connection.context->ops->irecv, buffers, count, sizes,
                      static_cast<uint32_t>(count), out);
}
inline int32_t irecv_v10(void* comm,
                         int count,
                         void** data,
                         size_t* sizes,
                         int* tags,
                         void** memory,
                         void**,
                         void** out) {
  return irecv(comm, count, data, sizes, tags, memory, out);
}

// NOLINTEND(readability-function-size)

inline int32_t iflush(void* comm, int count, void** data, int* sizes, void** memory, void** out) {
  auto& connection = *static_cast<Connection*>(comm);
  *out = nullptr;
  std::array<plexus_net_buffer_t, PLEXUS_NET_RECVS_MAX> buffers{};
  if (!fill_buffers(buffers, count, data, nullptr, memory)) {
    return PLEXUS_INVALID_ARGUMENT;
  }
  if (connection.context->ops->flush == nullptr) {
    return PLEXUS_OK;
  }
  if (connection.free.empty()) {
    return PLEXUS_INTERNAL_ERROR;  // a null request would mean that it is flushed
  }
  return post_buffers(connection, connection.context->ops->flush, buffers, count, sizes, 0, out);
}

inline int32_t test(void* handle, int* is_done, int* sizes) {
  auto& request = *static_cast<Request*>(handle);
  std::array<uint64_t, PLEXUS_NET_RECVS_MAX> sizes_bytes{};
  *is_done = 0;
  const int32_t code = request.connection->context->ops->test(request.raw, sizes_bytes.data());
  if (code == PLEXUS_AGAIN) {
    return PLEXUS_OK;
  }
  if (code == PLEXUS_OK && sizes != nullptr) {
    std::transform(sizes_bytes.begin(), sizes_bytes.begin() + request.count, sizes,
                   [](uint64_t size) { return static_cast<int>(size); });
  }
  *is_done = code == PLEXUS_OK ? 1 : 0;
  request.connection->free.push_back(&request);
  return code;
}

// ---- devices ----

template <class Properties>
void fill_common(const plexus_net_properties_t& from, int device, Properties& to) {
  to = {};
  to.name = from.name;
  to.pci_path = from.pci_path[0] == '\0' ? nullptr : from.pci_path;
  // NCCL takes devices of one guid for one port, and knows no "unknown".
  to.guid = from.guid == PLEXUS_UNKNOWN_U64 ? static_cast<uint64_t>(device) + 1 : from.guid;
  to.pointer_support = static_cast<int>(from.pointer_support);
  to.registration_is_global = static_cast<int>(from.registration_is_global);
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

/// Of one plugin in one process. Threads: any.
class Process {
 public:
  explicit Process(const plexus_net_ops_t& ops) : ops_(&ops) {}

  /// Makes the process's context and reads its devices, the first time.
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
  /// After init.
  [[nodiscard]] Context& context() noexcept { return *context_; }
  [[nodiscard]] const std::vector<plexus_net_properties_t>& devices() const noexcept {
    return devices_;
  }

 private:
  const plexus_net_ops_t* ops_;
  std::mutex mutex_;
  std::unique_ptr<Context> context_;              // guarded by mutex_ until init succeeded
  std::vector<plexus_net_properties_t> devices_;  // the same
};

// ---- the tables ----

template <const plexus_net_ops_t& kOps>
struct Tables {
  /// Never destroyed: NCCL may call from threads that outlive main().
  static Process& process() {
    // NOLINTNEXTLINE(*-avoid-non-const-global-variables): NCCL's v8 to v10 have no context
    static Process& state = *give_to_nccl(std::make_unique<Process>(kOps));
    return state;
  }
  template <class Body>
  static int32_t wall(nccl_log_fn log, Body&& body) noexcept {
    Host host{log};
    return guard(Log(&write_line, reinterpret_cast<plexus_log_sink_t*>(&host)), body);
  }
  static int32_t init(nccl_log_fn log) {
    return wall(log, [&] { return process().init(log); });
  }
  static int32_t init_v10(nccl_log_fn log, nccl_profiler_fn) { return init(log); }
  static int32_t init_v11(void** context,
                          uint64_t comm_id,
                          nccl_comm_config_t* config,
                          nccl_log_fn log,
                          nccl_profiler_fn) {
    return wall(log, [&] { return process().init_comm(context, comm_id, config, log); });
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
  static int32_t listen_v6(int device, void* handle, void** out) {
    return listen(process().context(), device, handle, out);
  }
  static int32_t listen_v11(void* context, int device, void* handle, void** out) {
    return listen(*static_cast<Context*>(context), device, handle, out);
  }
  static int32_t connect_v7(int device, void* handle, void** out, nccl_device_handle_t**) {
    return connect(process().context(), device, handle, out);
  }
  static int32_t connect_v10(
      int device, nccl_comm_config_t*, void* handle, void** out, nccl_device_handle_t**) {
    return connect(process().context(), device, handle, out);
  }
  static int32_t connect_v11(
      void* context, int device, void* handle, void** out, nccl_device_handle_t**) {
    return connect(*static_cast<Context*>(context), device, handle, out);
  }

  /// What all versions have alike. `Properties` is the version's.
  template <class Table, class Properties>
  static constexpr Table common(const char* name) {
    Table table{};
    table.name = name;
    table.devices = &devices;
    table.get_properties = &get_properties<Properties>;
    table.accept = &accept;
    table.register_memory = &register_memory;
    table.register_dmabuf = &register_dmabuf;
    table.deregister = &deregister;
    table.iflush = &iflush;
    table.test = &test;
    table.close_send = &close_send;
    table.close_recv = &close_recv;
    table.close_listen = &close_listen;
    return table;
  }
  static constexpr nccl_net_v8_t v8(const char* name) {
    auto table = common<nccl_net_v8_t, nccl_net_properties_v8_t>(name);
    table.init = &init;
    table.listen = &listen_v6;
    table.connect = &connect_v7;
    table.isend = &isend_v6;
    table.irecv = &irecv<int>;
    return table;
  }
  static constexpr nccl_net_v9_t v9(const char* name) {
    auto table = common<nccl_net_v9_t, nccl_net_properties_v9_t>(name);
    table.init = &init;
    table.listen = &listen_v6;
    table.connect = &connect_v7;
    table.isend = &isend;
    table.irecv = &irecv<size_t>;
    return table;
  }
  static constexpr nccl_net_v10_t v10(const char* name) {
    auto table = common<nccl_net_v10_t, nccl_net_properties_v10_t>(name);
    table.init = &init_v10;
    table.listen = &listen_v6;
    table.connect = &connect_v10;
    table.isend = &isend_v10;
    table.irecv = &irecv_v10;
    return table;
  }
  template <class Table, class Properties>
  static constexpr Table since_v11(const char* name) {
    auto table = common<Table, Properties>(name);
    table.init = &init_v11;
    table.listen = &listen_v11;
    table.connect = &connect_v11;
    table.isend = &isend_v10;
    table.irecv = &irecv_v10;
    table.finalize = &Process::finalize;
    return table;
  }
};

}  // namespace plexus::plugin::nccl_export

/// In a plugin's .cpp, outside of namespaces. `ops` is a plexus_net_ops_t of static storage.
#define PLEXUS_EXPORT_NCCL_NET(ops, name)                                                          \
  extern "C" {                                                                                     \
  extern PLEXUS_PLUGIN_EXPORT const nccl_net_v8_t ncclNetPlugin_v8;                                \
  extern PLEXUS_PLUGIN_EXPORT const nccl_net_v9_t ncclNetPlugin_v9;                                \
  extern PLEXUS_PLUGIN_EXPORT const nccl_net_v10_t ncclNetPlugin_v10;                              \
  extern PLEXUS_PLUGIN_EXPORT const nccl_net_v11_t ncclNetPlugin_v11;                              \
  extern PLEXUS_PLUGIN_EXPORT const nccl_net_v12_t ncclNetPlugin_v12;                              \
  constexpr nccl_net_v8_t ncclNetPlugin_v8 = ::plexus::plugin::nccl_export::Tables<ops>::v8(name); \
  constexpr nccl_net_v9_t ncclNetPlugin_v9 = ::plexus::plugin::nccl_export::Tables<ops>::v9(name); \
  constexpr nccl_net_v10_t ncclNetPlugin_v10 =                                                     \
      ::plexus::plugin::nccl_export::Tables<ops>::v10(name);                                       \
  constexpr nccl_net_v11_t ncclNetPlugin_v11 =                                                     \
      ::plexus::plugin::nccl_export::Tables<ops>::since_v11<nccl_net_v11_t,                        \
                                                            nccl_net_properties_v11_t>(name);      \
  constexpr nccl_net_v12_t ncclNetPlugin_v12 =                                                     \
      ::plexus::plugin::nccl_export::Tables<ops>::since_v11<nccl_net_v12_t,                        \
                                                            nccl_net_properties_v12_t>(name);      \
  }
