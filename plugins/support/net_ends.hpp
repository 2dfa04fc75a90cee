// SPDX-License-Identifier: Apache-2.0
// The structs behind the host's handles for a network whose `Listener` and `Connector` make a
// `Link`, from which a `SendConnection` or a `RecvConnection` is made. The plugin writes one class,
// its Context, and derives the four structs that net_table.hpp asks for:
//
//   struct Context {
//     using Device = ...; using Listener = ...; using Connector = ...; using Link = ...;
//     using SendRequest = ...; using RecvRequest = ...;       // and FlushRequest, where it flushes
//     using SendConnection = ...; using RecvConnection = ...;
//     static Result<Context> open(const plexus_net_config_t& config, const Log& log);
//     const std::vector<Device>& devices() const;
//     void describe(const Device& device, plexus_net_properties_t& properties) const;
//     Result<std::unique_ptr<Listener>> listen_on(const Device& device, plexus_net_handle_t&);
//     Result<Connector> connect_from(const Device& device, const plexus_net_handle_t& handle);
//     Result<std::unique_ptr<SendConnection>> make_send(const Device& device, Link&& link);
//     Result<std::unique_ptr<RecvConnection>> make_recv(const Device& device, Link&& link);
//     Log log;
//   };
//   struct plexus_net_context : plexus::plugin::NetContext<Context> {};
//   struct plexus_net_listen : plexus::plugin::NetListen<Context> {};
//   struct plexus_net_send : plexus::plugin::NetSend<Context> {};
//   struct plexus_net_recv : plexus::plugin::NetRecv<Context> {};
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "plugins/support/net_table.hpp"

namespace plexus::plugin {

template <class Own>
struct NetRecv {
  Own* context;
  std::unique_ptr<typename Own::RecvConnection> connection;
};

template <class Own>
struct NetSend {
  Own* context;
  const typename Own::Device* device;
  typename Own::Connector connector;
  std::unique_ptr<typename Own::SendConnection> connection;  // once connected

  Result<Progress> connect() {
    typename Own::Link link;
    PLEXUS_TRY(progress, connector.try_connect(link));
    if (progress == Progress::kDone) {
      PLEXUS_TRY(made, context->make_send(*device, std::move(link)));
      connection = std::move(made);
    }
    return progress;
  }
};

template <class Own>
struct NetListen {
  Own* context;
  const typename Own::Device* device;
  std::unique_ptr<typename Own::Listener> listener;

  template <class Recv>
  Result<Progress> accept(Recv*& recv) {
    typename Own::Link link;
    PLEXUS_TRY(progress, listener->try_accept(link));
    if (progress == Progress::kDone) {
      PLEXUS_TRY(made, context->make_recv(*device, std::move(link)));
      recv = give_to_host(std::unique_ptr<Recv>(new Recv{{context, std::move(made)}}));
    }
    return progress;
  }
};

template <class Own>
struct NetContext : Own {
  template <class Context>
  static Result<void> open(const plexus_net_config_t& config, const Log& log, Context*& context) {
    PLEXUS_TRY(own, Own::open(config, log));
    context = give_to_host(std::unique_ptr<Context>(new Context{{std::move(own)}}));
    return ok();
  }
  int32_t count_devices(uint32_t& count) const {
    count = static_cast<uint32_t>(Own::devices().size());
    return PLEXUS_OK;
  }
  Result<void> read_properties(uint32_t device, plexus_net_properties_t& properties) const {
    PLEXUS_TRY(found, find_device(device));
    Own::describe(*found, properties);
    return ok();
  }
  template <class Listen>
  Result<void> listen(uint32_t device, plexus_net_handle_t& handle, Listen*& listen) {
    PLEXUS_TRY(found, find_device(device));
    PLEXUS_TRY(listener, Own::listen_on(*found, handle));
    listen = give_to_host(std::unique_ptr<Listen>(new Listen{{this, found, std::move(listener)}}));
    return ok();
  }
  template <class Send>
  Result<Progress> connect(uint32_t device, const plexus_net_handle_t& handle, Send*& send) {
    if (send == nullptr) {
      PLEXUS_TRY(found, find_device(device));
      PLEXUS_TRY(connector, Own::connect_from(*found, handle));
      send = give_to_host(
          std::unique_ptr<Send>(new Send{{this, found, std::move(connector), nullptr}}));
    }
    return send->connect();
  }
  static int32_t test(plexus_net_request_t* request, uint64_t* sizes_bytes) {
    return test_as<plexus_net_request_t>(*request, sizes_bytes);
  }

 private:
  Result<const typename Own::Device*> find_device(uint32_t device) const {
    const auto& devices = Own::devices();
    if (device >= devices.size()) {
      return fail(PLEXUS_INVALID_ARGUMENT, "there is no device {}: there are {}", device,
                  devices.size());
    }
    return &devices[device];
  }
  template <class Request>
  static int32_t test_as(Request& request, uint64_t* sizes_bytes) {
    if constexpr (requires { typename Own::FlushRequest; }) {
      if (request.kind == Request::Kind::kFlush) {
        return test_request(static_cast<typename Own::FlushRequest&>(request), sizes_bytes);
      }
    }
    return request.kind == Request::Kind::kSend
               ? test_request(static_cast<typename Own::SendRequest&>(request), sizes_bytes)
               : test_request(static_cast<typename Own::RecvRequest&>(request), sizes_bytes);
  }
};

}  // namespace plexus::plugin
