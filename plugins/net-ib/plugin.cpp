// SPDX-License-Identifier: Apache-2.0
// net-ib: InfiniBand and RoCE as a Plexus net plugin, through libibverbs. This file has the
// descriptor and the table, each entry of which is one `guard` statement over the C++ code. It
// exports `plexus_plugin_query` and, for NCCL itself, ncclNetPlugin_v6 to v12.
#include <memory>

#include "plugin-api/plexus_net.h"

#include "plugins/net-ib/device.hpp"
#include "plugins/net-ib/endpoint.hpp"
#include "plugins/net-ib/recv.hpp"
#include "plugins/net-ib/send.hpp"
#include "plugins/net-ib/settings.hpp"
#include "plugins/support/abi_boundary.hpp"
#include "plugins/support/handle.hpp"
#include "plugins/support/nccl_export.hpp"
#include "plugins/support/settings.hpp"

using plexus::net_ib::Connector;
using plexus::net_ib::Device;
using plexus::net_ib::Devices;
using plexus::net_ib::FlushRequest;
using plexus::net_ib::Link;
using plexus::net_ib::Listener;
using plexus::net_ib::message_bytes_max;
using plexus::net_ib::Place;
using plexus::net_ib::read_path;
using plexus::net_ib::read_settings;
using plexus::net_ib::RecvConnection;
using plexus::net_ib::RecvRequest;
using plexus::net_ib::SendConnection;
using plexus::net_ib::SendRequest;
using plexus::net_ib::Settings;
using plexus::plugin::fail;
using plexus::plugin::give_to_host;
using plexus::plugin::guard;
using plexus::plugin::Log;
using plexus::plugin::ok;
using plexus::plugin::Progress;
using plexus::plugin::Result;
using plexus::plugin::take_from_host;

// The C structs behind the host's handles.

struct plexus_net_context {
  Log log;
  Settings settings;
  std::unique_ptr<Devices> devices;
};

struct plexus_net_listen {
  plexus_net_context* context;
  Place place;
  std::unique_ptr<Listener> listener;
};

struct plexus_net_send {
  plexus_net_context* context;
  Place place;
  Connector connector;
  std::unique_ptr<SendConnection> connection;  // once connected
};

struct plexus_net_recv {
  plexus_net_context* context;
  std::unique_ptr<RecvConnection> connection;
};

namespace {

Result<const Device*> find_device(const plexus_net_context& context, uint32_t device) {
  const auto& devices = context.devices->list();
  if (device >= devices.size()) {
    return fail(PLEXUS_INVALID_ARGUMENT, "there is no device {}: there are {}", device,
                devices.size());
  }
  return &devices[device];
}

int32_t init(const plexus_net_config_t* config, plexus_net_context_t** context) {
  const Log log(config->log, config->log_sink);
  return guard(log, [&]() -> Result<void> {
    PLEXUS_TRY(settings,
               read_settings(plexus::plugin::SettingReader(*config), config->traffic_class));
    log.warn_each(settings.limited);
    PLEXUS_TRY(devices, Devices::open(settings, log));
    *context = give_to_host(std::unique_ptr<plexus_net_context>(
        new plexus_net_context{log, std::move(settings), std::move(devices)}));
    return ok();
  });
}

void finalize(plexus_net_context_t* context) { take_from_host(context); }

int32_t device_count(plexus_net_context_t* context, uint32_t* count) {
  *count = static_cast<uint32_t>(context->devices->list().size());
  return PLEXUS_OK;
}

int32_t properties(plexus_net_context_t* context,
                   uint32_t device,
                   plexus_net_properties_t* result) {
  return guard(context->log, [&]() -> Result<void> {
    PLEXUS_TRY(found, find_device(*context, device));
    Devices::read_properties(*found, *result);
    result->message_bytes_max = message_bytes_max(*found);
    return ok();
  });
}

int32_t start_listening(plexus_net_context_t* context,
                        uint32_t device,
                        plexus_net_handle_t* handle,
                        plexus_net_listen_t** listen) {
  return guard(context->log, [&]() -> Result<void> {
    PLEXUS_TRY(found, find_device(*context, device));
    const Place place = {found, &context->settings, context->log};
    PLEXUS_TRY(listener, Listener::create(place, *handle));
    *listen = give_to_host(std::unique_ptr<plexus_net_listen>(
        new plexus_net_listen{context, place, std::move(listener)}));
    return ok();
  });
}

int32_t connect(plexus_net_context_t* context,
                uint32_t device,
                const plexus_net_handle_t* handle,
                plexus_net_send_t** send) {
  return guard(context->log, [&]() -> Result<Progress> {
    if (*send == nullptr) {
      PLEXUS_TRY(found, find_device(*context, device));
      const Place place = {found, &context->settings, context->log};
      PLEXUS_TRY(connector, Connector::create(place, *handle));
      *send = give_to_host(std::unique_ptr<plexus_net_send>(
          new plexus_net_send{context, place, std::move(connector), nullptr}));
    }
    Link link;
    PLEXUS_TRY(progress, (*send)->connector.try_connect(link));
    if (progress == Progress::kDone) {
      (*send)->connection = std::make_unique<SendConnection>(std::move(link), (*send)->place);
    }
    return progress;
  });
}

int32_t accept(plexus_net_listen_t* listen, plexus_net_recv_t** recv) {
  plexus_net_context* context = listen->context;
  return guard(context->log, [&]() -> Result<Progress> {
    Link link;
    PLEXUS_TRY(progress, listen->listener->try_accept(link));
    if (progress == Progress::kDone) {
      *recv = give_to_host(std::unique_ptr<plexus_net_recv>(new plexus_net_recv{
          context, std::make_unique<RecvConnection>(std::move(link), listen->place)}));
    }
    return progress;
  });
}

int32_t register_send(plexus_net_send_t* send,
                      const plexus_net_region_t* region,
                      plexus_net_memory_t** memory) {
  return guard(send->context->log, [&]() -> Result<void> {
    PLEXUS_TRY(registered, send->connection->register_memory(*region));
    *memory = registered;
    return ok();
  });
}

int32_t register_recv(plexus_net_recv_t* recv,
                      const plexus_net_region_t* region,
                      plexus_net_memory_t** memory) {
  return guard(recv->context->log, [&]() -> Result<void> {
    PLEXUS_TRY(registered, recv->connection->register_memory(*region));
    *memory = registered;
    return ok();
  });
}

int32_t deregister(plexus_net_memory_t* memory) {
  plexus::net_ib::deregister(*memory);
  take_from_host(memory);
  return PLEXUS_OK;
}

int32_t isend(plexus_net_send_t* send,
              const void* data,
              uint64_t size_bytes,
              int32_t tag,
              plexus_net_memory_t* memory,
              plexus_net_request_t** request) {
  const plexus_net_source_t source = {data, size_bytes, memory};
  return guard(send->context->log, [&] {
    return send->connection->isend({&source, 1}, tag, request);
  });
}

int32_t isend_gathered(plexus_net_send_t* send,
                       uint32_t count,
                       const plexus_net_source_t* sources,
                       int32_t tag,
                       plexus_net_request_t** request) {
  return guard(send->context->log, [&] {
    return send->connection->isend({sources, count}, tag, request);
  });
}

int32_t irecv(plexus_net_recv_t* recv,
              uint32_t count,
              const plexus_net_buffer_t* buffers,
              plexus_net_request_t** request) {
  return guard(recv->context->log,
               [&] { return recv->connection->irecv(count, buffers, request); });
}

int32_t flush(plexus_net_recv_t* recv,
              uint32_t count,
              const plexus_net_buffer_t* buffers,
              plexus_net_request_t** request) {
  return guard(recv->context->log,
               [&] { return recv->connection->flush(count, buffers, request); });
}

int32_t test(plexus_net_request_t* request, uint64_t* sizes_bytes) {
  if (request->kind == plexus_net_request::Kind::kFlush) {
    auto& flushed = static_cast<FlushRequest&>(*request);
    return guard(flushed.connection->log(), [&] { return flushed.connection->test(flushed); });
  }
  if (request->kind == plexus_net_request::Kind::kSend) {
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

int32_t net_path(plexus_net_context_t* context,
                 uint64_t source,
                 uint64_t target,
                 plexus_net_path_t* path) {
  read_path(context->settings.fabric, source, target, *path);
  return PLEXUS_OK;
}

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
    .flush = flush,
    .test = test,
    .close_send = close_send,
    .close_recv = close_recv,
    .close_listen = close_listen,
    .net_path = net_path,
    .isend_pieces = nullptr,
    .irecv_pieces = nullptr,
    .isend_gathered = isend_gathered,
};

constexpr plexus_plugin_t kPlugin = {
    .magic = PLEXUS_PLUGIN_MAGIC,
    .struct_size = sizeof(plexus_plugin_t),
    .abi_major = PLEXUS_ABI_MAJOR,
    .abi_minor = PLEXUS_ABI_MINOR,
    .kind = PLEXUS_KIND_NET,
    .reserved = 0,
    .name = "IB",
    .version = PLEXUS_VERSION,
    .net = &kOps,
    .tuner = nullptr,
};

}  // namespace

const plexus_plugin_t* plexus_plugin_query(uint32_t host_abi) {
  return host_abi >> 16 == PLEXUS_ABI_MAJOR ? &kPlugin : nullptr;
}

PLEXUS_EXPORT_NCCL_NET(kOps, kPlugin.name)
