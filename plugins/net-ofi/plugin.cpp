// SPDX-License-Identifier: Apache-2.0
// net-ofi: libfabric as a Plexus net plugin. This file joins its parts; the table is that of
// plugins/support/net_table.hpp. It exports `plexus_plugin_query` and, for NCCL itself,
// ncclNetPlugin_v6 to v12.
#include <memory>
#include <utility>
#include <vector>

#include "plugin-api/plexus_net.h"

#include "plugins/net-ofi/connect.hpp"
#include "plugins/net-ofi/device.hpp"
#include "plugins/net-ofi/settings.hpp"
#include "plugins/net-ofi/transfer.hpp"
#include "plugins/support/net_ends.hpp"
#include "plugins/support/settings.hpp"

namespace plexus::net_ofi {

struct Context {
  using Device = net_ofi::Device;
  using Listener = net_ofi::Listener;
  using Connector = net_ofi::Connector;
  using Link = std::unique_ptr<Flow>;
  using SendConnection = net_ofi::SendConnection;
  using RecvConnection = net_ofi::RecvConnection;
  using SendRequest = net_ofi::SendRequest;
  using RecvRequest = net_ofi::RecvRequest;
  using FlushRequest = net_ofi::FlushRequest;

  static Result<Context> open(const plexus_net_config_t& config, const plugin::Log& log) {
    PLEXUS_TRY(settings, read_settings(plugin::SettingReader(config)));
    log.warn_each(settings.limited);
    PLEXUS_TRY(cards, Cards::open(settings));
    PLEXUS_TRY(links, Links::create());
    log.info("net-ofi: {}, provider {}, {} device{}, {}", library_text(), cards.provider(),
             cards.devices().size(), cards.devices().size() == 1 ? "" : "s",
             cards.device_memory_text());
    return Context{log, settings, std::move(cards), std::move(links)};
  }
  [[nodiscard]] const std::vector<Device>& devices() const { return cards.devices(); }
  void describe(const Device& device, plexus_net_properties_t& properties) const {
    cards.read_properties(device, this_process(settings.host_id).host_id, properties);
  }
  [[nodiscard]] Place place_of(const Device& device) const {
    return {&device, &settings, links.get(), log};
  }
  [[nodiscard]] auto listen_on(const Device& device, plexus_net_handle_t& handle) const {
    return Listener::create(place_of(device), cards.provider(), handle);
  }
  [[nodiscard]] auto connect_from(const Device& device, const plexus_net_handle_t& handle) const {
    return Connector::create(place_of(device), cards.provider(), handle);
  }
  Result<std::unique_ptr<SendConnection>> make_send(const Device& device, Link&& flow) const {
    plexus_net_properties_t facts{};
    describe(device, facts);
    return std::make_unique<SendConnection>(
        std::move(flow),
        SendConnection::Options{settings.stripe_bytes_min, facts.message_bytes_max});
  }
  static Result<std::unique_ptr<RecvConnection>> make_recv(const Device&, Link&& flow) {
    return std::make_unique<RecvConnection>(std::move(flow));
  }
  static int32_t deregister(plexus_net_memory_t* memory) {
    net_ofi::deregister(*memory);
    plugin::take_from_host(memory);
    return PLEXUS_OK;
  }
  int32_t net_path(uint64_t source, uint64_t target, plexus_net_path_t& path) const {
    read_path(cards, source, target, path);
    return PLEXUS_OK;
  }

  plugin::Log log;
  Settings settings;
  Cards cards;
  std::unique_ptr<Links> links;
};

}  // namespace plexus::net_ofi

struct plexus_net_context : plexus::plugin::NetContext<plexus::net_ofi::Context> {};
struct plexus_net_listen : plexus::plugin::NetListen<plexus::net_ofi::Context> {};
struct plexus_net_send : plexus::plugin::NetSend<plexus::net_ofi::Context> {};
struct plexus_net_recv : plexus::plugin::NetRecv<plexus::net_ofi::Context> {};

PLEXUS_NET_PLUGIN("OFI")
