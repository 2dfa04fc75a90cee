// SPDX-License-Identifier: Apache-2.0
#include "core/plugin/nccl_net/adapter.hpp"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "plugin-api/nccl/net_v11_cross_dc.h"

#include "core/plugin/nccl_net/call.hpp"
#include "core/plugin/nccl_net/vendor.hpp"

// The C structs behind the handles that the core holds.

namespace plexus::nccl_net {
namespace {

struct Connection;

}  // namespace
}  // namespace plexus::nccl_net

struct plexus_net_request {
  enum class Kind { kSend, kRecv, kFlush };
  plexus::nccl_net::Connection* connection = nullptr;
  void* raw = nullptr;  // the plugin's
  Kind kind = Kind::kSend;
  uint32_t count = 0;
  // size sent, or capacity of each receive buffer
  std::array<uint64_t, PLEXUS_NET_RECVS_MAX> sizes_bytes{};
};

struct plexus_net_memory {
  plexus::nccl_net::Connection* connection;
  void* raw;  // may be null: the plugin needs no registration
};

namespace plexus::nccl_net {
namespace {

/// State of both ends. `raw` is null until connected.
struct Connection {
  Connection(const plexus_net_context* used_context, uint32_t used_device)
      : context(used_context), device(used_device) {}

  /// Makes the pool for `count` requests in flight.
  void make_requests(size_t count) {
    requests = std::vector<plexus_net_request>(count);
    for (plexus_net_request& request : requests) {
      request.connection = this;
      free.push_back(&request);
    }
  }
  [[nodiscard]] const plexus_net_properties_t& properties() const {
    return context->devices[device];
  }

  const plexus_net_context* context;
  uint32_t device;
  void* raw = nullptr;
  std::vector<plexus_net_request> requests;
  std::vector<plexus_net_request*> free;  // reserved to its full size, so that use never allocates
};

}  // namespace
}  // namespace plexus::nccl_net

struct plexus_net_listen {
  plexus_net_context* context;
  uint32_t device;
  void* raw;
};

struct plexus_net_send : plexus::nccl_net::Connection {
  using Connection::Connection;
  // Plugins keep connect state in the handle and cast it to their own structs, hence the alignment.
  alignas(16) std::array<uint8_t, NCCL_HANDLE_BYTES> handle{};
};

struct plexus_net_recv : plexus::nccl_net::Connection {
  using Connection::Connection;
};

namespace plexus::nccl_net {
namespace {

static_assert(NCCL_HANDLE_BYTES == PLEXUS_NET_HANDLE_BYTES);

/// v9 and later may return it, though Plexus never requests it.
bool is_null(const void* request) {
  return request == nullptr || reinterpret_cast<uintptr_t>(request) == NCCL_OPTIONAL_COMPLETION;
}

// ---- the native table: contexts and connections ----

void finalize(plexus_net_context_t* context) {
  context->vendor->finalize(context->comm, context->log);
  take_from_host(context);
}

int32_t device_count(plexus_net_context_t* context, uint32_t* count) {
  *count = static_cast<uint32_t>(context->devices.size());
  return PLEXUS_OK;
}

int32_t properties(plexus_net_context_t* context,
                   uint32_t device,
                   plexus_net_properties_t* result) {
  if (device >= context->devices.size()) {
    return report(context->log, fail(Code::kInvalidArgument, "there is no device {}", device));
  }
  *result = context->devices[device];
  return PLEXUS_OK;
}

int32_t start_listening(plexus_net_context_t* context,
                        uint32_t device,
                        plexus_net_handle_t* handle,
                        plexus_net_listen_t** listen) {
  if (device >= context->devices.size()) {
    return report(context->log, fail(Code::kInvalidArgument, "there is no device {}", device));
  }
  alignas(16) std::array<uint8_t, NCCL_HANDLE_BYTES> bytes{};
  void* raw = nullptr;
  const int32_t code = call_vendor(context->log, "listen", [&] {
    return context->net().listen(context->comm, static_cast<int>(device), bytes.data(), &raw);
  });
  if (code != PLEXUS_OK) {
    return code;
  }
  if (raw == nullptr) {
    return report(context->log,
                  fail(Code::kInternalError,
                       "its listen succeeded without a listenComm; this is a bug in the plugin"));
  }
  std::memcpy(handle->bytes, bytes.data(), bytes.size());
  *listen =
      give_to_host(std::unique_ptr<plexus_net_listen>(new plexus_net_listen{context, device, raw}));
  return PLEXUS_OK;
}

int32_t connect(plexus_net_context_t* context,
                uint32_t device,
                const plexus_net_handle_t* handle,
                plexus_net_send_t** send) {
  if (*send == nullptr) {
    if (device >= context->devices.size()) {
      return report(context->log, fail(Code::kInvalidArgument, "there is no device {}", device));
    }
    auto made = std::make_unique<plexus_net_send>(context, device);
    std::memcpy(made->handle.data(), handle->bytes, made->handle.size());
    *send = give_to_host(std::move(made));
  }
  plexus_net_send& connection = **send;
  nccl_device_handle_t* offload = nullptr;  // a host does not use what is offered
  const int32_t code = call_vendor(context->log, "connect", [&] {
    return context->net().connect(context->comm, static_cast<int>(device), connection.handle.data(),
                                  &connection.raw, &offload);
  });
  if (code != PLEXUS_OK || connection.raw == nullptr) {
    return code == PLEXUS_OK ? PLEXUS_AGAIN : code;
  }
  const plexus_net_properties_t& limits = connection.properties();
  connection.make_requests(size_t{limits.requests_max} * limits.recvs_max);
  return PLEXUS_OK;
}

int32_t accept(plexus_net_listen_t* listen, plexus_net_recv_t** recv) {
  plexus_net_context* const context = listen->context;
  void* raw = nullptr;
  nccl_device_handle_t* offload = nullptr;
  const int32_t code = call_vendor(
      context->log, "accept", [&] { return context->net().accept(listen->raw, &raw, &offload); });
  if (code != PLEXUS_OK || raw == nullptr) {
    return code == PLEXUS_OK ? PLEXUS_AGAIN : code;
  }
  auto made = std::make_unique<plexus_net_recv>(context, listen->device);
  made->raw = raw;
  made->make_requests(size_t{2} * made->properties().requests_max);  // receives and flushes
  *recv = give_to_host(std::move(made));
  return PLEXUS_OK;
}

// ---- memory ----

Result<void> check_region(const Connection& connection, const plexus_net_region_t& region) {
  const auto& name = connection.properties().name;
  if ((connection.properties().pointer_support & region.kind) == 0) {
    return fail(Code::kInvalidUsage, "device {} cannot use memory of kind {}", name, region.kind);
  }
  if (const uint64_t most = connection.context->net().region_bytes_max();
      region.size_bytes > most) {
    return fail(Code::kInvalidUsage,
                "device {} registers at most {} bytes at once in this ABI version, {} were "
                "requested; lower NCCL_BUFFSIZE or use a newer plugin",
                name, most, region.size_bytes);
  }
  return ok();
}

int32_t register_memory(Connection& connection,
                        const plexus_net_region_t& region,
                        plexus_net_memory_t** memory) {
  const plexus_net_context& context = *connection.context;
  if (auto checked = check_region(connection, region); checked.has_error()) {
    return report(context.log, checked.error());
  }
  auto made = std::unique_ptr<plexus_net_memory>(new plexus_net_memory{&connection, nullptr});
  const int32_t code = call_vendor(context.log, "regMr", [&] {
    return context.net().register_memory(connection.raw, region, &made->raw);
  });
  if (code == PLEXUS_OK) {
    *memory = give_to_host(std::move(made));
  }
  return code;
}

int32_t register_send(plexus_net_send_t* send,
                      const plexus_net_region_t* region,
                      plexus_net_memory_t** memory) {
  return register_memory(*send, *region, memory);
}
int32_t register_recv(plexus_net_recv_t* recv,
                      const plexus_net_region_t* region,
                      plexus_net_memory_t** memory) {
  return register_memory(*recv, *region, memory);
}

int32_t deregister(plexus_net_memory_t* memory) {
  const Connection& connection = *memory->connection;
  const int32_t code = call_vendor(connection.context->log, "deregMr", [&] {
    return connection.context->net().deregister(connection.raw, memory->raw);
  });
  take_from_host(memory);
  return code;
}

void* raw_memory(const plexus_net_memory_t* memory) {
  return memory == nullptr ? nullptr : memory->raw;
}

// ---- the data path ----

/// Starts what `post` posts, with a request from the pool. PLEXUS_AGAIN when the pool is empty or
/// the plugin returns no request.
template <class Post>
int32_t start(Connection& connection,
              const char* call,
              plexus_net_request** request,
              const Post& post) {
  if (connection.free.empty()) {
    return PLEXUS_AGAIN;
  }
  plexus_net_request& made = *connection.free.back();
  made.raw = nullptr;
  const int32_t code = call_vendor(connection.context->log, call, [&] { return post(&made.raw); });
  if (code != PLEXUS_OK || is_null(made.raw)) {
    return code == PLEXUS_OK ? PLEXUS_AGAIN : code;
  }
  connection.free.pop_back();
  *request = &made;
  return PLEXUS_OK;
}

int32_t isend(plexus_net_send_t* send,
              const void* data,
              uint64_t size_bytes,
              int32_t tag,
              plexus_net_memory_t* memory,
              plexus_net_request_t** request) {
  if (size_bytes > send->properties().message_bytes_max) {
    return report(send->context->log,
                  fail(Code::kInvalidArgument, "a message has {} bytes, device {} sends at most {}",
                       size_bytes, send->properties().name, send->properties().message_bytes_max));
  }
  const int32_t code = start(*send, "isend", request, [&](void** raw) {
    return send->context->net().isend(send->raw, const_cast<void*>(data), size_bytes, tag,
                                      raw_memory(memory), nullptr, raw);
  });
  if (code == PLEXUS_OK) {
    (*request)->kind = plexus_net_request::Kind::kSend;
    (*request)->count = 1;
    (*request)->sizes_bytes[0] = size_bytes;
  }
  return code;
}

/// Capacities are upper bounds; no message exceeds message_bytes_max.
Buffers to_arrays(const plexus_net_recv& recv, uint32_t count, const plexus_net_buffer_t* buffers) {
  Buffers arrays;
  arrays.count = static_cast<int>(count);
  for (uint32_t i = 0; i < count; ++i) {
    arrays.data[i] = buffers[i].data;
    arrays.sizes[i] = std::min(buffers[i].size_bytes, recv.properties().message_bytes_max);
    arrays.tags[i] = buffers[i].tag;
    arrays.memory[i] = raw_memory(buffers[i].memory);
  }
  return arrays;
}

int32_t check_count(const plexus_net_recv& recv, uint32_t count) {
  if (count == 0 || count > recv.properties().recvs_max) {
    return report(
        recv.context->log,
        fail(Code::kInvalidArgument, "{} buffers in one receive, device {} supports 1..{}", count,
             recv.properties().name, recv.properties().recvs_max));
  }
  return PLEXUS_OK;
}

int32_t irecv(plexus_net_recv_t* recv,
              uint32_t count,
              const plexus_net_buffer_t* buffers,
              plexus_net_request_t** request) {
  if (const int32_t code = check_count(*recv, count); code != PLEXUS_OK) {
    return code;
  }
  Buffers arrays = to_arrays(*recv, count, buffers);
  std::array<void*, PLEXUS_NET_RECVS_MAX> no_profiles{};
  arrays.profiles = no_profiles.data();
  const int32_t code = start(*recv, "irecv", request, [&](void** raw) {
    return recv->context->net().irecv(recv->raw, arrays, raw);
  });
  if (code == PLEXUS_OK) {
    (*request)->kind = plexus_net_request::Kind::kRecv;
    (*request)->count = count;
    std::copy_n(arrays.sizes.begin(), count, (*request)->sizes_bytes.begin());
  }
  return code;
}

int32_t flush(plexus_net_recv_t* recv,
              uint32_t count,
              const plexus_net_buffer_t* buffers,
              plexus_net_request_t** request) {
  if (const int32_t code = check_count(*recv, count); code != PLEXUS_OK) {
    return code;
  }
  if (recv->free.empty()) {
    return PLEXUS_AGAIN;
  }
  *request = nullptr;
  Buffers arrays = to_arrays(*recv, count, buffers);
  const int32_t code = start(*recv, "iflush", request, [&](void** raw) {
    return recv->context->net().iflush(recv->raw, arrays, raw);
  });
  if (code == PLEXUS_OK) {
    (*request)->kind = plexus_net_request::Kind::kFlush;
    (*request)->count = 0;
  }
  return code == PLEXUS_AGAIN ? PLEXUS_OK : code;  // no request: nothing to flush
}

/// Stores the sizes of a finished receive. False: the plugin reports impossible sizes.
bool take_sizes(const plexus_net_request& request, const int* sizes, uint64_t* sizes_bytes) {
  for (uint32_t i = 0; i < request.count; ++i) {
    if (sizes[i] < 0 || static_cast<uint64_t>(sizes[i]) > request.sizes_bytes[i]) {
      return false;
    }
    if (sizes_bytes != nullptr) {
      sizes_bytes[i] = static_cast<uint64_t>(sizes[i]);
    }
  }
  return true;
}

int32_t test(plexus_net_request_t* request, uint64_t* sizes_bytes) {
  using Kind = plexus_net_request::Kind;
  Connection& connection = *request->connection;
  int is_done = 0;
  std::array<int, NCCL_TEST_SIZES> sizes;  // NOLINT(*-member-init): the next line sets what counts
  std::fill_n(sizes.begin(), PLEXUS_NET_RECVS_MAX, 0);
  int32_t code = call_vendor(connection.context->log, "test", [&] {
    return connection.context->net().test(request->raw, &is_done,
                                          request->kind == Kind::kFlush ? nullptr : sizes.data());
  });
  if (code == PLEXUS_OK && is_done == 0) {
    return PLEXUS_AGAIN;
  }
  if (code == PLEXUS_OK && request->kind == Kind::kRecv &&
      !take_sizes(*request, sizes.data(), sizes_bytes)) {
    code = report(connection.context->log, fail(Code::kInternalError,
                                                "it reports a receive of {} bytes into a buffer of "
                                                "{}; this is a bug in the plugin or in the peer's",
                                                sizes[0], request->sizes_bytes[0]));
  }
  if (code == PLEXUS_OK && request->kind == Kind::kSend && sizes_bytes != nullptr) {
    *sizes_bytes = request->sizes_bytes[0];  // not all plugins report the size of a send
  }
  connection.free.push_back(request);
  return code;
}

// ---- the ends ----

void close_send(plexus_net_send_t* send) {
  if (send->raw != nullptr) {
    const LogScope scope(send->context->log);
    send->context->net().close_send(send->raw);
  }
  take_from_host(send);
}
void close_recv(plexus_net_recv_t* recv) {
  {
    const LogScope scope(recv->context->log);
    recv->context->net().close_recv(recv->raw);
  }
  take_from_host(recv);
}
void close_listen(plexus_net_listen_t* listen) {
  {
    const LogScope scope(listen->context->log);
    listen->context->net().close_listen(listen->raw);
  }
  take_from_host(listen);
}

int32_t net_path(plexus_net_context_t* context,
                 uint64_t source,
                 uint64_t target,
                 plexus_net_path_t* path) {
  int level = source == target ? PLEXUS_NET_LEVEL_SAME_DC : PLEXUS_NET_LEVEL_UNKNOWN;
  int32_t code = PLEXUS_OK;
  if (context->net().has_net_path()) {
    level = NCCL_PATH_DISCONNECTED;
    code = call_vendor(context->log, "getNetPath",
                       [&] { return context->net().net_path(source, target, level); });
  }
  *path = {.level = level >= NCCL_PATH_DISCONNECTED ? PLEXUS_NET_LEVEL_DISCONNECTED : level,
           .loss_per_billion = PLEXUS_UNKNOWN_U32,
           .bandwidth_mbit_per_s = PLEXUS_UNKNOWN_U64,
           .latency_ns = PLEXUS_UNKNOWN_U64,
           .cost = PLEXUS_UNKNOWN_U64,
           .reserved = {}};
  return code;
}

/// A printable, non-empty name for messages.
std::string printable(std::string name) {
  std::replace_if(
      name.begin(), name.end(), [](char c) { return c < ' ' || c > '~'; }, '?');
  return name.empty() ? "(unnamed)" : name;
}

}  // namespace

plexus_net_ops_t make_ops() {
  return {.struct_size = sizeof(plexus_net_ops_t),
          .reserved = 0,
          .init = nullptr,
          .finalize = finalize,
          .device_count = device_count,
          .properties = properties,
          .listen = start_listening,
          .connect = connect,
          .accept = accept,
          .register_send = register_send,
          .register_recv = register_recv,
          .deregister = deregister,
          .isend = isend,
          .irecv = irecv,
          .flush = flush,
          .test = test,
          .close_send = close_send,
          .close_recv = close_recv,
          .close_listen = close_listen,
          .net_path = net_path,
          .isend_pieces = nullptr,
          .irecv_pieces = nullptr,
          .isend_gathered = nullptr};
}

Result<std::shared_ptr<const NetPlugin>> adapt(const Library& library, Choice choice) {
  // Entries besides init may be filled in by init.
  if (const char* const missing = choice.net->find_missing_entry();
      missing != nullptr && std::string_view(missing) == "init") {
    return fail(Code::kInvalidUsage, "its {} has no `init`; this is a bug in the plugin",
                choice.entry);
  }
  NetDescriptor descriptor;
  descriptor.entry = std::move(choice.entry);
  descriptor.ops = make_ops();
  if (!choice.net->has_net_path()) {
    descriptor.ops.net_path = nullptr;
  }
  auto vendor = std::make_shared<const Vendor>(std::move(choice.net));
  descriptor.name = printable(vendor->name());
  return std::make_shared<const NetPlugin>(library.path(), std::move(descriptor),
                                           std::move(vendor));
}

}  // namespace plexus::nccl_net
