// SPDX-License-Identifier: Apache-2.0
// net-socket: TCP as a Plexus net plugin. This file joins its parts; the table is that of
// plugins/support/net_table.hpp. It exports `plexus_plugin_query` and, for NCCL itself,
// ncclNetPlugin_v6 to v12.
#include <memory>
#include <utility>
#include <vector>

#include "plugin-api/plexus_net.h"

#include "plugins/net-socket/endpoint.hpp"
#include "plugins/net-socket/nic.hpp"
#include "plugins/net-socket/settings.hpp"
#include "plugins/net-socket/transfer.hpp"
#include "plugins/support/net_ends.hpp"
#include "plugins/support/settings.hpp"

namespace plexus::net_socket {

struct Context {
  using Device = Nic;
  using Listener = net_socket::Listener;
  using Connector = net_socket::Connector;
  using Link = net_socket::Link;
  using SendConnection = net_socket::SendConnection;
  using RecvConnection = net_socket::RecvConnection;
  using SendRequest = net_socket::SendRequest;
  using RecvRequest = net_socket::RecvRequest;

  static Result<Context> open(const plexus_net_config_t& config, const plugin::Log& log) {
    PLEXUS_TRY(settings, read_settings(plugin::SettingReader(config)));
    log.warn_each(settings.limited);
    PLEXUS_TRY(nics, find_nics(settings.family));
    PLEXUS_TRY(chosen, choose_nics(nics, settings.interfaces));
    return Context{log, settings, chosen};
  }
  [[nodiscard]] const std::vector<Nic>& devices() const { return nics; }
  static void describe(const Nic& nic, plexus_net_properties_t& properties) {
    read_properties(nic, properties);
  }
  [[nodiscard]] auto listen_on(const Nic& nic, plexus_net_handle_t& handle) const {
    return Listener::create(nic, settings, log, handle);
  }
  [[nodiscard]] auto connect_from(const Nic& nic, const plexus_net_handle_t& handle) const {
    return Connector::create(nic, settings, handle);
  }
  [[nodiscard]] auto make_send(const Nic&, Link&& link) const {
    return SendConnection::create(std::move(link), settings, log);
  }
  [[nodiscard]] auto make_recv(const Nic&, Link&& link) const {
    return RecvConnection::create(std::move(link), settings, log);
  }
  static int32_t deregister(plexus_net_memory_t*) { return PLEXUS_OK; }

  plugin::Log log;
  Settings settings;
  std::vector<Nic> nics;
};

}  // namespace plexus::net_socket

struct plexus_net_context : plexus::plugin::NetContext<plexus::net_socket::Context> {};
struct plexus_net_listen : plexus::plugin::NetListen<plexus::net_socket::Context> {};
struct plexus_net_send : plexus::plugin::NetSend<plexus::net_socket::Context> {};
struct plexus_net_recv : plexus::plugin::NetRecv<plexus::net_socket::Context> {};

PLEXUS_NET_PLUGIN("Socket")  // NCCL's name of it: NCCL_NET=Socket
