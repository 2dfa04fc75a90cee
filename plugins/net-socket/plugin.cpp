// SPDX-License-Identifier: Apache-2.0
// net-socket: TCP as a Plexus net plugin. This file has the descriptor and the table, each entry of
// which is one `guard` statement over the C++ code. It exports `plexus_plugin_query` and, for NCCL
// itself, ncclNetPlugin_v6 to v12.
#include <memory>
#include <vector>

#include "plugin-api/plexus_net.h"

#include "plugins/net-socket/endpoint.hpp"
#include "plugins/net-socket/memory.hpp"
#include "plugins/net-socket/nic.hpp"
#include "plugins/net-socket/settings.hpp"
#include "plugins/net-socket/transfer.hpp"
#include "plugins/support/abi_boundary.hpp"
#include "plugins/support/handle.hpp"
#include "plugins/support/nccl_export.hpp"
#include "plugins/support/settings.hpp"

using plexus::net_socket::check_region;
using plexus::net_socket::choose_nics;
using plexus::net_socket::Connector;
using plexus::net_socket::find_nics;
using plexus::net_socket::Link;
using plexus::net_socket::Listener;
using plexus::net_socket::Nic;
using plexus::net_socket::Pieces;
using plexus::net_socket::read_properties;
using plexus::net_socket::read_settings;
using plexus::net_socket::RecvConnection;
using plexus::net_socket::RecvRequest;
using plexus::net_socket::SendConnection;
using plexus::net_socket::SendRequest;
using plexus::net_socket::Settings;
using plexus::plugin::fail;
using plexus::plugin::give_to_host;
using plexus::plugin::guard;
using plexus::plugin::Log;
using plexus::plugin::ok;
using plexus::plugin::Progress;
using plexus::plugin::Result;
using plexus::plugin::SettingReader;
using plexus::plugin::take_from_host;

// The C structs behind the host's handles.

struct plexus_net_context {
  Log log;
  Settings settings;
  std::vector<Nic> nics;
};

struct plexus_net_listen {
  plexus_net_context* context;
  Listener listener;
};

struct plexus_net_send {
  plexus_net_context* context;
  Connector connector;
  std::unique_ptr<SendConnection> connection;  // once connected
};

struct plexus_net_recv {
  plexus_net_context* context;
  std::unique_ptr<RecvConnection> connection;
};

namespace {

Result<const Nic*> find_nic(const plexus_net_context& context, uint32_t device) {
  if (device >= context.nics.size()) {
    return fail(PLEXUS_INVALID_ARGUMENT, "there is no device {}: there are {}", device,
                context.nics.size());
  }
  return &context.nics[device];
}

int32_t init(const plexus_net_config_t* config, plexus_net_context_t** context) {
  const Log log(config->log, config->log_sink);
  return guard(log, [&]() -> Result<void> {
    PLEXUS_TRY(settings, read_settings(SettingReader(*config)));
    log.warn_each(settings.limited);
    PLEXUS_TRY(nics, find_nics(settings.family));
    PLEXUS_TRY(chosen, choose_nics(nics, settings.interfaces));
    *context = give_to_host(
        std::unique_ptr<plexus_net_context>(new plexus_net_context{log, settings, chosen}));
    return ok();
  });
}

void finalize(plexus_net_context_t* context) { take_from_host(context); }

int32_t device_count(plexus_net_context_t* context, uint32_t* count) {
  *count = static_cast<uint32_t>(context->nics.size());
  return PLEXUS_OK;
}

int32_t properties(plexus_net_context_t* context,
                   uint32_t device,
                   plexus_net_properties_t* result) {
  return guard(context->log, [&]() -> Result<void> {
    PLEXUS_TRY(nic, find_nic(*context, device));
    read_properties(*nic, *result);
    return ok();
  });
}

int32_t start_listening(plexus_net_context_t* context,
                        uint32_t device,
                        plexus_net_handle_t* handle,
                        plexus_net_listen_t** listen) {
  return guard(context->log, [&]() -> Result<void> {
    PLEXUS_TRY(nic, find_nic(*context, device));
    PLEXUS_TRY(listener, Listener::create(*nic, context->settings, context->log, *handle));
    *listen = give_to_host(
        std::unique_ptr<plexus_net_listen>(new plexus_net_listen{context, std::move(listener)}));
    return ok();
  });
}

int32_t connect(plexus_net_context_t* context,
                uint32_t device,
                const plexus_net_handle_t* handle,
                plexus_net_send_t** send) {
  return guard(context->log, [&]() -> Result<Progress> {
    if (*send == nullptr) {
      PLEXUS_TRY(nic, find_nic(*context, device));
      PLEXUS_TRY(connector, Connector::create(*nic, context->settings, *handle));
      *send = give_to_host(std::unique_ptr<plexus_net_send>(
          new plexus_net_send{context, std::move(connector), nullptr}));
    }
    Link link;
    PLEXUS_TRY(progress, (*send)->connector.try_connect(link));
    if (progress == Progress::kDone) {
      PLEXUS_TRY(connection,
                 SendConnection::create(std::move(link), context->settings, context->log));
      (*send)->connection = std::move(connection);
    }
    return progress;
  });
}

int32_t accept(plexus_net_listen_t* listen, plexus_net_recv_t** recv) {
  plexus_net_context* context = listen->context;
  return guard(context->log, [&]() -> Result<Progress> {
    Link link;
    PLEXUS_TRY(progress, listen->listener.try_accept(link));
    if (progress == Progress::kDone) {
      PLEXUS_TRY(connection,
                 RecvConnection::create(std::move(link), context->settings, context->log));
      *recv = give_to_host(
          std::unique_ptr<plexus_net_recv>(new plexus_net_recv{context, std::move(connection)}));
    }
    return progress;
  });
}

int32_t register_send(plexus_net_send_t* send,
                      const plexus_net_region_t* region,
                      plexus_net_memory_t** memory) {
  *memory = nullptr;
  return guard(send->context->log, [&] { return check_region(*region); });
}

int32_t register_recv(plexus_net_recv_t* recv,
                      const plexus_net_region_t* region,
                      plexus_net_memory_t** memory) {
  *memory = nullptr;
  return guard(recv->context->log, [&] { return check_region(*region); });
}

int32_t deregister(plexus_net_memory_t*) { return PLEXUS_OK; }

int32_t isend(plexus_net_send_t* send,
              const void* data,
              uint64_t size_bytes,
              int32_t tag,
              plexus_net_memory_t*,
              plexus_net_request_t** request) {
  return guard(send->context->log, [&] {
    Pieces payload;
    payload.add(data, size_bytes);
    return send->connection->isend(payload, tag, request);
  });
}

/// False: no pieces, or too many.
bool take_pieces(uint32_t count,
                 const plexus_net_piece_t* pieces,
                 const plexus::plugin::Log& log,
                 Pieces& taken) {
  if (count == 0 || count > PLEXUS_NET_PIECES_MAX) {
    log.error("a message has 1..4 pieces");
    return false;
  }
  for (uint32_t i = 0; i < count; ++i) {
    taken.add(pieces[i].data, pieces[i].size_bytes);
  }
  return true;
}

int32_t isend_pieces(plexus_net_send_t* send,
                     uint32_t count,
                     const plexus_net_piece_t* pieces,
                     int32_t tag,
                     plexus_net_request_t** request) {
  return guard(send->context->log, [&] {
    Pieces payload;
    return take_pieces(count, pieces, send->context->log, payload)
               ? send->connection->isend(payload, tag, request)
               : PLEXUS_INVALID_ARGUMENT;
  });
}

int32_t irecv_pieces(plexus_net_recv_t* recv,
                     uint32_t count,
                     const plexus_net_piece_t* pieces,
                     int32_t tag,
                     plexus_net_request_t** request) {
  return guard(recv->context->log, [&] {
    Pieces room;
    return take_pieces(count, pieces, recv->context->log, room)
               ? recv->connection->irecv_pieces(room, tag, request)
               : PLEXUS_INVALID_ARGUMENT;
  });
}

int32_t irecv(plexus_net_recv_t* recv,
              uint32_t count,
              const plexus_net_buffer_t* buffers,
              plexus_net_request_t** request) {
  return guard(recv->context->log,
               [&] { return recv->connection->irecv(count, buffers, request); });
}

int32_t test(plexus_net_request_t* request, uint64_t* sizes_bytes) {
  if (request->is_send) {
    auto& sent = static_cast<SendRequest&>(*request);
    return guard(sent.connection->log(), [&] { return sent.connection->test(sent, sizes_bytes); });
  }
  auto& received = static_cast<RecvRequest&>(*request);
  return guard(received.connection->log(),
               [&] { return received.connection->test(received, sizes_bytes); });
}

void close_send(plexus_net_send_t* send) { take_from_host(send); }
void close_recv(plexus_net_recv_t* recv) { take_from_host(recv); }
void close_listen(plexus_net_listen_t* listen) { take_from_host(listen); }

constexpr plexus_net_ops_t kOps = {
    .struct_size = sizeof(plexus_net_ops_t),
    .reserved = 0,
    .init = init,
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
    .flush = nullptr,  // host memory only
    .test = test,
    .close_send = close_send,
    .close_recv = close_recv,
    .close_listen = close_listen,
    .net_path = nullptr,  // TCP has no information about fabrics
    .isend_pieces = isend_pieces,
    .irecv_pieces = irecv_pieces,
    .isend_gathered = nullptr,  // pieces need no registration
};

constexpr plexus_plugin_t kPlugin = {
    .magic = PLEXUS_PLUGIN_MAGIC,
    .struct_size = sizeof(plexus_plugin_t),
    .abi_major = PLEXUS_ABI_MAJOR,
    .abi_minor = PLEXUS_ABI_MINOR,
    .kind = PLEXUS_KIND_NET,
    .reserved = 0,
    .name = "Socket",  // NCCL's name of it: NCCL_NET=Socket
    .version = PLEXUS_VERSION,
    .net = &kOps,
    .tuner = nullptr,
};

}  // namespace

const plexus_plugin_t* plexus_plugin_query(uint32_t host_abi) {
  return host_abi >> 16 == PLEXUS_ABI_MAJOR ? &kPlugin : nullptr;
}

PLEXUS_EXPORT_NCCL_NET(kOps, kPlugin.name)
