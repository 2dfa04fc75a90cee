// SPDX-License-Identifier: Apache-2.0
// The table of a net plugin, made from the plugin's C++ types: every entry is one `guard` statement
// over a member function of the struct behind the handle, or of its `connection`. In the plugin's
// .cpp, below plexus_net_context, plexus_net_listen, plexus_net_send and plexus_net_recv:
//
//   PLEXUS_NET_PLUGIN("Socket")  // plexus_plugin_query, and ncclNetPlugin_v6 to v12 for NCCL
//
// What a member function returns, a Result<void>, a Result<Progress> or a code, crosses as
// abi_boundary.hpp says. The entries that a table may lack (flush, net_path, isend_pieces and
// irecv_pieces, isend_gathered) are null unless there is such a function. net_ends.hpp has the
// structs of networks that connect with a listener and a connector.
#pragma once

#include <cstdint>

#include "plugin-api/plexus_net.h"

#include "plugins/support/abi_boundary.hpp"
#include "plugins/support/descriptor.hpp"
#include "plugins/support/handle.hpp"
#include "plugins/support/nccl_export.hpp"

namespace plexus::plugin {

template <class Context, class Listen, class Send, class Recv>
struct NetTable {
  using SendConnection = typename decltype(Send::connection)::element_type;
  using RecvConnection = typename decltype(Recv::connection)::element_type;

  static int32_t init(const plexus_net_config_t* config, Context** context) {
    const Log log(config->log, config->log_sink);
    return guard(log, [&] { return Context::open(*config, log, *context); });
  }
  static int32_t device_count(Context* context, uint32_t* count) {
    return guard(context->log, [&] { return context->count_devices(*count); });
  }
  static int32_t properties(Context* context, uint32_t device, plexus_net_properties_t* result) {
    return guard(context->log, [&] { return context->read_properties(device, *result); });
  }
  static int32_t listen(Context* context,
                        uint32_t device,
                        plexus_net_handle_t* handle,
                        Listen** listen) {
    return guard(context->log, [&] { return context->listen(device, *handle, *listen); });
  }
  static int32_t connect(Context* context,
                         uint32_t device,
                         const plexus_net_handle_t* handle,
                         Send** send) {
    return guard(context->log, [&] { return context->connect(device, *handle, *send); });
  }
  static int32_t accept(Listen* listen, Recv** recv) {
    return guard(listen->context->log, [&] { return listen->accept(*recv); });
  }
  template <class End>
  static int32_t register_memory(End* end,
                                 const plexus_net_region_t* region,
                                 plexus_net_memory_t** memory) {
    return guard(end->context->log, [&]() -> Result<void> {
      PLEXUS_TRY(registered, end->connection->register_memory(*region));
      *memory = registered;
      return ok();
    });
  }
  static int32_t isend(Send* send,
                       const void* data,
                       uint64_t size_bytes,
                       int32_t tag,
                       plexus_net_memory_t* memory,
                       plexus_net_request_t** request) {
    return guard(send->context->log,
                 [&] { return send->connection->isend(data, size_bytes, tag, memory, request); });
  }
  static int32_t irecv(Recv* recv,
                       uint32_t count,
                       const plexus_net_buffer_t* buffers,
                       plexus_net_request_t** request) {
    return guard(recv->context->log,
                 [&] { return recv->connection->irecv(count, buffers, request); });
  }
  static int32_t flush(Recv* recv,
                       uint32_t count,
                       const plexus_net_buffer_t* buffers,
                       plexus_net_request_t** request) {
    return guard(recv->context->log,
                 [&] { return recv->connection->flush(count, buffers, request); });
  }
  static int32_t net_path(Context* context,
                          uint64_t source,
                          uint64_t target,
                          plexus_net_path_t* path) {
    return guard(context->log, [&] { return context->net_path(source, target, *path); });
  }
  static int32_t isend_pieces(Send* send,
                              uint32_t count,
                              const plexus_net_piece_t* pieces,
                              int32_t tag,
                              plexus_net_request_t** request) {
    return guard(send->context->log,
                 [&] { return send->connection->isend_pieces(count, pieces, tag, request); });
  }
  static int32_t irecv_pieces(Recv* recv,
                              uint32_t count,
                              const plexus_net_piece_t* pieces,
                              int32_t tag,
                              plexus_net_request_t** request) {
    return guard(recv->context->log,
                 [&] { return recv->connection->irecv_pieces(count, pieces, tag, request); });
  }
  static int32_t isend_gathered(Send* send,
                                uint32_t count,
                                const plexus_net_source_t* sources,
                                int32_t tag,
                                plexus_net_request_t** request) {
    return guard(send->context->log,
                 [&] { return send->connection->isend_gathered(count, sources, tag, request); });
  }

  static constexpr plexus_net_ops_t make() {
    plexus_net_ops_t table = {
        .struct_size = sizeof(plexus_net_ops_t),
        .reserved = 0,
        .init = init,
        .finalize = take_from_host<Context>,
        .device_count = device_count,
        .properties = properties,
        .listen = listen,
        .connect = connect,
        .accept = accept,
        .register_send = register_memory<Send>,
        .register_recv = register_memory<Recv>,
        .deregister = Context::deregister,
        .isend = isend,
        .irecv = irecv,
        .flush = nullptr,
        .test = Context::test,
        .close_send = take_from_host<Send>,
        .close_recv = take_from_host<Recv>,
        .close_listen = take_from_host<Listen>,
        .net_path = nullptr,
        .isend_pieces = nullptr,
        .irecv_pieces = nullptr,
        .isend_gathered = nullptr,
    };
    if constexpr (requires { &RecvConnection::flush; }) {
      table.flush = flush;
    }
    if constexpr (requires { &Context::net_path; }) {
      table.net_path = net_path;
    }
    if constexpr (requires { &SendConnection::isend_pieces; }) {
      table.isend_pieces = isend_pieces;
      table.irecv_pieces = irecv_pieces;
    }
    if constexpr (requires { &SendConnection::isend_gathered; }) {
      table.isend_gathered = isend_gathered;
    }
    return table;
  }
};

/// A request is tested by the connection that it belongs to; its host gets that one's errors.
template <class Request>
int32_t test_request(Request& request, uint64_t* sizes_bytes) {
  auto& connection = *request.connection;
  return guard(connection.log(), [&] {
    if constexpr (requires { connection.test(request, sizes_bytes); }) {
      return connection.test(request, sizes_bytes);
    } else {
      return connection.test(request);
    }
  });
}

}  // namespace plexus::plugin

/// For a plugin's .cpp, outside of namespaces, once.
#define PLEXUS_NET_PLUGIN(plugin_name)                                                           \
  namespace {                                                                                    \
  constexpr plexus_net_ops_t kOps = ::plexus::plugin::                                           \
      NetTable<plexus_net_context, plexus_net_listen, plexus_net_send, plexus_net_recv>::make(); \
  constexpr plexus_plugin_t kPlugin =                                                            \
      ::plexus::plugin::describe({.name = plugin_name, .net = &kOps});                           \
  }                                                                                              \
  const plexus_plugin_t* plexus_plugin_query(uint32_t host_abi) {                                \
    return ::plexus::plugin::answer(host_abi, kPlugin);                                          \
  }                                                                                              \
  PLEXUS_EXPORT_NCCL_NET(kOps, plugin_name)
