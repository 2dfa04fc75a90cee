// SPDX-License-Identifier: Apache-2.0
// The structs behind the handles that NCCL holds of a native net plugin (nccl_export.hpp): the
// plugin's host, connections, memory and the data path, as NCCL's tables call them.
#pragma once

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <sys/random.h>
#include <vector>

#include "plugin-api/nccl/net_common.h"
#include "plugin-api/plexus_net.h"

#include "guest/assert.hpp"
#include "plugins/support/abi_boundary.hpp"

namespace plexus::plugin::nccl_export {

// ---- the host of the plugin ----

/// The host's `log_sink`.
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
  uint32_t count = 0;  // number of sizes that test() reports
};

/// The target of a sendComm or recvComm.
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
  plexus_net_send_t* send = nullptr;  // exactly one of the two is set
  plexus_net_recv_t* recv = nullptr;
  plexus_net_handle_t handle{};  // while connecting
  std::vector<Request> requests;
  std::vector<Request*> free;  // reserved to its full size, so that use never allocates
};
struct Listener {
  Context* context;
  plexus_net_listen_t* raw;
};

inline constexpr size_t kReceivesInFlight = size_t{2} * NCCL_REQUESTS_MAX;  // receives and flushes
inline constexpr size_t kSendsInFlight = size_t{NCCL_REQUESTS_MAX} * PLEXUS_NET_RECVS_MAX;

template <class T>
T* give_to_nccl(std::unique_ptr<T> owner) {
  return owner.release();
}
template <class T>
void take_from_nccl(void* handle) {
  const std::unique_ptr<T> owner(static_cast<T*>(handle));
}

/// A connect in progress stores this in NCCL's copy of the handle. The token is a secret of this
/// process, so that a peer's bytes cannot be mistaken for it.
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
    std::memset(handle, 0, sizeof ticket);  // the connection that it refers to is gone
    return code;
  });
}

inline int32_t accept(void* listener, void** out) {
  *out = nullptr;
  const Listener& from = *static_cast<const Listener*>(listener);
  return guard(from.context->log(), [&]() -> int32_t {
    auto made = std::make_unique<Connection>(*from.context);
    const int32_t code = from.context->ops->accept(from.raw, &made->recv);
    if (code == PLEXUS_OK) {
      made->make_requests(kReceivesInFlight);
      *out = give_to_nccl(std::move(made));
      // native plugins may keep a connection in progress; NCCL cannot
    } else if (made->recv != nullptr) {
      from.context->ops->close_recv(made->recv);
    }
    return code == PLEXUS_AGAIN ? PLEXUS_OK : code;
  });
}
inline int32_t accept(void* listener, void** out, nccl_device_handle_t**) {
  return accept(listener, out);
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
inline int32_t register_memory(void* comm, void* data, int size, int kind, void** memory) {
  return size < 0 ? PLEXUS_INVALID_ARGUMENT
                  : register_memory(comm, data, static_cast<size_t>(size), kind, memory);
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

/// Ends a post: a null request means "call again" to NCCL.
inline int32_t posted(
    Connection& connection, int32_t code, plexus_net_request_t* raw, uint32_t count, void** out) {
  if (code != PLEXUS_OK || raw == nullptr) {
    return code == PLEXUS_AGAIN ? PLEXUS_OK : code;
  }
  PLEXUS_DCHECK(!connection.free.empty());
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
inline int32_t isend(void* comm, void* data, int size, int tag, void* memory, void** out) {
  return size < 0 ? PLEXUS_INVALID_ARGUMENT
                  : isend(comm, data, static_cast<size_t>(size), tag, memory, out);
}
inline int32_t isend(
    void* comm, void* data, size_t size, int tag, void* memory, void*, void** out) {
  return isend(comm, data, size, tag, memory, out);
}

using PostBuffers = decltype(plexus_net_ops_t::irecv);

/// irecv and flush; their sizes are int or size_t.
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

/// False: too many buffers.
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
  *out = nullptr;  // NCCL may pass in "may complete early" there
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
inline int32_t irecv(void* comm,
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
  PLEXUS_DCHECK(request.connection->free.size() < request.connection->requests.size(),
                request.connection->free.size());
  request.connection->free.push_back(&request);
  return code;
}

}  // namespace plexus::plugin::nccl_export
