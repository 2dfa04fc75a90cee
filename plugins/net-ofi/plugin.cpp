// SPDX-License-Identifier: Apache-2.0
// net-ofi: libfabric as a Plexus net plugin. This file has the descriptor and the table, each entry
// of which is one `guard` statement over the C++ code. It exports `plexus_plugin_query` and, for
// NCCL itself, ncclNetPlugin_v6 to v12.
#include <memory>

#include "plugin-api/plexus_net.h"

#include "plugins/net-ofi/connect.hpp"
#include "plugins/net-ofi/device.hpp"
#include "plugins/net-ofi/settings.hpp"
#include "plugins/net-ofi/transfer.hpp"
#include "plugins/support/abi_boundary.hpp"
#include "plugins/support/handle.hpp"
#include "plugins/support/nccl_export.hpp"
#include "plugins/support/settings.hpp"

using plexus::net_ofi::Cards;
using plexus::net_ofi::Channel;
using plexus::net_ofi::Connector;
using plexus::net_ofi::Device;
using plexus::net_ofi::FlushRequest;
using plexus::net_ofi::Links;
using plexus::net_ofi::Listener;
using plexus::net_ofi::Place;
using plexus::net_ofi::read_path;
using plexus::net_ofi::read_settings;
using plexus::net_ofi::RecvConnection;
using plexus::net_ofi::RecvRequest;
using plexus::net_ofi::SendConnection;
using plexus::net_ofi::SendRequest;
using plexus::net_ofi::Settings;
using plexus::net_ofi::this_process;
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
  Cards cards;
  std::unique_ptr<Links> links;
};

struct plexus_net_listen {
  plexus_net_context* context;
  std::unique_ptr<Listener> listener;
};

struct plexus_net_send {
  plexus_net_context* context;
  const Device* device;
  Connector connector;
  std::unique_ptr<SendConnection> connection;  // once connected
};

struct plexus_net_recv {
  plexus_net_context* context;
  std::unique_ptr<RecvConnection> connection;
};

namespace {

Result<const Device*> find_device(const plexus_net_context& context, uint32_t device) {
  const auto& devices = context.cards.devices();
  if (device >= devices.size()) {
    return fail(PLEXUS_INVALID_ARGUMENT, "there is no device {}: there are {}", device,
                devices.size());
  }
  return &devices[device];
}

Place place_of(const plexus_net_context& context, const Device& device) {
  return {&device, &context.settings, context.links.get(), context.log};
}

plexus_net_properties_t properties_of(const plexus_net_context& context, const Device& device) {
  plexus_net_properties_t properties{};
  context.cards.read_properties(device, this_process(context.settings.host_id).host_id, properties);
  return properties;
}

int32_t init(const plexus_net_config_t* config, plexus_net_context_t** context) {
  const Log log(config->log, config->log_sink);
  return guard(log, [&]() -> Result<void> {
    PLEXUS_TRY(settings, read_settings(plexus::plugin::SettingReader(*config)));
    log.warn_each(settings.limited);
    PLEXUS_TRY(cards, Cards::open(settings));
    PLEXUS_TRY(links, Links::create());
    log.info("net-ofi: {}, provider {}, {} device{}, {}", plexus::net_ofi::library_text(),
             cards.provider(), cards.devices().size(), cards.devices().size() == 1 ? "" : "s",
             cards.device_memory_text());
    *context = give_to_host(std::unique_ptr<plexus_net_context>(
        new plexus_net_context{log, settings, std::move(cards), std::move(links)}));
    return ok();
  });
}

void finalize(plexus_net_context_t* context) { take_from_host(context); }

int32_t device_count(plexus_net_context_t* context, uint32_t* count) {
  *count = static_cast<uint32_t>(context->cards.devices().size());
  return PLEXUS_OK;
}

int32_t properties(plexus_net_context_t* context,
                   uint32_t device,
                   plexus_net_properties_t* result) {
  return guard(context->log, [&]() -> Result<void> {
    PLEXUS_TRY(found, find_device(*context, device));
    *result = properties_of(*context, *found);
    return ok();
  });
}

int32_t start_listening(plexus_net_context_t* context,
                        uint32_t device,
                        plexus_net_handle_t* handle,
                        plexus_net_listen_t** listen) {
  return guard(context->log, [&]() -> Result<void> {
    PLEXUS_TRY(found, find_device(*context, device));
    PLEXUS_TRY(listener,
               Listener::create(place_of(*context, *found), context->cards.provider(), *handle));
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
      PLEXUS_TRY(found, find_device(*context, device));
      PLEXUS_TRY(connector,
                 Connector::create(place_of(*context, *found), context->cards.provider(), *handle));
      *send = give_to_host(std::unique_ptr<plexus_net_send>(
          new plexus_net_send{context, found, std::move(connector), nullptr}));
    }
    std::unique_ptr<Channel> channel;
    PLEXUS_TRY(progress, (*send)->connector.try_connect(channel));
    if (progress == Progress::kDone) {
      const plexus_net_properties_t facts = properties_of(*context, *(*send)->device);
      (*send)->connection = std::make_unique<SendConnection>(
          std::move(channel),
          SendConnection::Options{context->settings.stripe_bytes_min, facts.message_bytes_max});
    }
    return progress;
  });
}

int32_t accept(plexus_net_listen_t* listen, plexus_net_recv_t** recv) {
  plexus_net_context* context = listen->context;
  return guard(context->log, [&]() -> Result<Progress> {
    std::unique_ptr<Channel> channel;
    PLEXUS_TRY(progress, listen->listener->try_accept(channel));
    if (progress == Progress::kDone) {
      *recv = give_to_host(std::unique_ptr<plexus_net_recv>(
          new plexus_net_recv{context, std::make_unique<RecvConnection>(std::move(channel))}));
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
  plexus::net_ofi::deregister(*memory);
  take_from_host(memory);
  return PLEXUS_OK;
}

int32_t isend(plexus_net_send_t* send,
              const void* data,
              uint64_t size_bytes,
              int32_t tag,
              plexus_net_memory_t* memory,
              plexus_net_request_t** request) {
  return guard(send->context->log,
               [&] { return send->connection->isend(data, size_bytes, tag, memory, request); });
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
  read_path(context->cards, source, target, *path);
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
    .isend_gathered = nullptr,
};

constexpr plexus_plugin_t kPlugin = {
    .magic = PLEXUS_PLUGIN_MAGIC,
    .struct_size = sizeof(plexus_plugin_t),
    .abi_major = PLEXUS_ABI_MAJOR,
    .abi_minor = PLEXUS_ABI_MINOR,
    .kind = PLEXUS_KIND_NET,
    .reserved = 0,
    .name = "OFI",
    .version = PLEXUS_VERSION,
    .net = &kOps,
    .tuner = nullptr,
};

}  // namespace

const plexus_plugin_t* plexus_plugin_query(uint32_t host_abi) {
  return host_abi >> 16 == PLEXUS_ABI_MAJOR ? &kPlugin : nullptr;
}

PLEXUS_EXPORT_NCCL_NET(kOps, kPlugin.name)
