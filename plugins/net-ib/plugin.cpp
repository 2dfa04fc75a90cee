// SPDX-License-Identifier: Apache-2.0
// net-ib: InfiniBand and RoCE as a Plexus net plugin, through libibverbs. This file joins its
// parts; the table is that of plugins/support/net_table.hpp. It exports `plexus_plugin_query` and,
// for NCCL itself, ncclNetPlugin_v6 to v12.
#include <memory>
#include <utility>
#include <vector>

#include "plugin-api/plexus_net.h"

#include "plugins/net-ib/device.hpp"
#include "plugins/net-ib/endpoint.hpp"
#include "plugins/net-ib/recv.hpp"
#include "plugins/net-ib/send.hpp"
#include "plugins/net-ib/settings.hpp"
#include "plugins/support/net_ends.hpp"
#include "plugins/support/settings.hpp"

namespace plexus::net_ib {

struct Context {
  using Device = net_ib::Device;
  using Listener = net_ib::Listener;
  using Connector = net_ib::Connector;
  using Link = net_ib::Link;
  using SendConnection = net_ib::SendConnection;
  using RecvConnection = net_ib::RecvConnection;
  using SendRequest = net_ib::SendRequest;
  using RecvRequest = net_ib::RecvRequest;
  using FlushRequest = net_ib::FlushRequest;

  static Result<Context> open(const plexus_net_config_t& config, const plugin::Log& log) {
    PLEXUS_TRY(settings, read_settings(plugin::SettingReader(config), config.traffic_class));
    log.warn_each(settings.limited);
    PLEXUS_TRY(cards, Devices::open(settings, log));
    return Context{log, std::move(settings), std::move(cards)};
  }
  [[nodiscard]] const std::vector<Device>& devices() const { return cards->list(); }
  static void describe(const Device& device, plexus_net_properties_t& properties) {
    Devices::read_properties(device, properties);
    properties.message_bytes_max = message_bytes_max(device);
  }
  [[nodiscard]] Place place_of(const Device& device) const { return {&device, &settings, log}; }
  [[nodiscard]] auto listen_on(const Device& device, plexus_net_handle_t& handle) const {
    return Listener::create(place_of(device), handle);
  }
  [[nodiscard]] auto connect_from(const Device& device, const plexus_net_handle_t& handle) const {
    return Connector::create(place_of(device), handle);
  }
  Result<std::unique_ptr<SendConnection>> make_send(const Device& device, Link&& link) const {
    return std::make_unique<SendConnection>(std::move(link), place_of(device));
  }
  Result<std::unique_ptr<RecvConnection>> make_recv(const Device& device, Link&& link) const {
    return std::make_unique<RecvConnection>(std::move(link), place_of(device));
  }
  static int32_t deregister(plexus_net_memory_t* memory) {
    net_ib::deregister(*memory);
    plugin::take_from_host(memory);
    return PLEXUS_OK;
  }
  int32_t net_path(uint64_t source, uint64_t target, plexus_net_path_t& path) const {
    read_path(settings.fabric, source, target, path);
    return PLEXUS_OK;
  }

  plugin::Log log;
  Settings settings;
  std::unique_ptr<Devices> cards;
};

}  // namespace plexus::net_ib

struct plexus_net_context : plexus::plugin::NetContext<plexus::net_ib::Context> {};
struct plexus_net_listen : plexus::plugin::NetListen<plexus::net_ib::Context> {};
struct plexus_net_send : plexus::plugin::NetSend<plexus::net_ib::Context> {};
struct plexus_net_recv : plexus::plugin::NetRecv<plexus::net_ib::Context> {};

PLEXUS_NET_PLUGIN("IB")
