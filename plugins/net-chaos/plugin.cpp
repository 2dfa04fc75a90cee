// SPDX-License-Identifier: Apache-2.0
// net-chaos: a wrapper that simulates bad paths of another net plugin. This file has the structs
// behind the host's handles; the table is that of plugins/support/net_table.hpp.
#include <atomic>
#include <memory>
#include <utility>

#include "plugin-api/plexus_net.h"

#include "plugins/net-chaos/connection.hpp"
#include "plugins/net-chaos/inner.hpp"
#include "plugins/net-chaos/settings.hpp"
#include "plugins/support/interface.hpp"
#include "plugins/support/net_table.hpp"

using plexus::net_chaos::Connection;
using plexus::net_chaos::load_inner;
using plexus::net_chaos::Neighbours;
using plexus::net_chaos::read_settings;
using plexus::net_chaos::RecvConnection;
using plexus::net_chaos::SendConnection;
using plexus::net_chaos::Settings;
using plexus::net_chaos::Subject;
using plexus::plugin::give_to_host;
using plexus::plugin::Log;
using plexus::plugin::ok;
using plexus::plugin::pass_on;
using plexus::plugin::Progress;
using plexus::plugin::Result;

struct plexus_net_context {
  plexus_net_context(const Log& own_log, const plexus_net_ops_t* inner_ops, Settings own_settings)
      : log(own_log), ops(inner_ops), settings(std::move(own_settings)) {}
  plexus_net_context(const plexus_net_context&) = delete;
  plexus_net_context& operator=(const plexus_net_context&) = delete;
  ~plexus_net_context() {
    if (inner != nullptr) {
      ops->finalize(inner);
    }
  }
  static Result<void> open(const plexus_net_config_t& config,
                           const Log& log,
                           plexus_net_context_t*& context);
  int32_t count_devices(uint32_t& count) const { return ops->device_count(inner, &count); }
  int32_t read_properties(uint32_t device, plexus_net_properties_t& result) const;
  Result<void> listen(uint32_t device, plexus_net_handle_t& handle, plexus_net_listen_t*& listen);
  Result<Progress> connect(uint32_t device,
                           const plexus_net_handle_t& handle,
                           plexus_net_send_t*& send);
  int32_t net_path(uint64_t source, uint64_t target, plexus_net_path_t& path) const;
  Connection::Options options_of(const Subject& subject);
  static int32_t deregister(plexus_net_memory_t* memory) {
    return memory->connection->deregister(memory);
  }
  static int32_t test(plexus_net_request_t* request, uint64_t* sizes_bytes) {
    return plexus::plugin::test_request(*request, sizes_bytes);
  }

  Log log;
  const plexus_net_ops_t* ops;
  Settings settings;
  uint64_t seed = 0;
  plexus_net_context_t* inner = nullptr;
  std::atomic<uint32_t> sends{0};
  std::atomic<uint32_t> recvs{0};
  Neighbours neighbours = {};
};

struct plexus_net_listen {
  plexus_net_listen(plexus_net_context_t* owner, uint32_t at) : context(owner), device(at) {}
  plexus_net_listen(const plexus_net_listen&) = delete;
  plexus_net_listen& operator=(const plexus_net_listen&) = delete;
  ~plexus_net_listen() {
    if (inner != nullptr) {
      context->ops->close_listen(inner);
    }
  }
  Result<Progress> accept(plexus_net_recv_t*& recv) const;

  plexus_net_context* context;
  uint32_t device;
  plexus_net_listen_t* inner = nullptr;
};

struct plexus_net_send {
  plexus_net_send(plexus_net_context_t* owner, uint32_t place) : context(owner), number(place) {}
  plexus_net_send(const plexus_net_send&) = delete;
  plexus_net_send& operator=(const plexus_net_send&) = delete;
  ~plexus_net_send() {
    if (connecting != nullptr) {
      context->ops->close_send(connecting);
    }
  }

  plexus_net_context* context;
  uint32_t number;
  plexus_net_send_t* connecting = nullptr;     // until it is connected
  std::unique_ptr<SendConnection> connection;  // afterwards
};

struct plexus_net_recv {
  explicit plexus_net_recv(plexus_net_context_t* owner) : context(owner) {}
  plexus_net_recv(const plexus_net_recv&) = delete;
  plexus_net_recv& operator=(const plexus_net_recv&) = delete;
  ~plexus_net_recv() {
    if (accepting != nullptr) {
      context->ops->close_recv(accepting);
    }
  }

  plexus_net_context* context;
  plexus_net_recv_t* accepting = nullptr;      // until it is accepted
  std::unique_ptr<RecvConnection> connection;  // afterwards
};

Result<void> plexus_net_context::open(const plexus_net_config_t& config,
                                      const Log& log,
                                      plexus_net_context_t*& context) {
  PLEXUS_TRY(settings, read_settings(plexus::plugin::SettingReader(config)));
  PLEXUS_TRY(ops, load_inner(settings.inner_name));
  auto made = std::make_unique<plexus_net_context>(log, ops, std::move(settings));
  made->seed = made->settings.seed ^ config.comm_id;
  made->settings.block.block_in("init");
  PLEXUS_TRY(pass_on(ops->init(&config, &made->inner)));
  context = give_to_host(std::move(made));
  return ok();
}

int32_t plexus_net_context::read_properties(uint32_t device,
                                            plexus_net_properties_t& result) const {
  const int32_t code = ops->properties(inner, device, &result);
  if (code == PLEXUS_OK) {
    result.takes_pieces = 0;  // effects on messages apply to one contiguous buffer
    if (settings.script.piece_bytes() > 0) {
      result.recvs_max = 1;  // a message in pieces is joined in one buffer
    }
  }
  return code;
}

Result<void> plexus_net_context::listen(uint32_t device,
                                        plexus_net_handle_t& handle,
                                        plexus_net_listen_t*& listen) {
  settings.block.block_in("listen");
  auto made = std::make_unique<plexus_net_listen>(this, device);
  PLEXUS_TRY(pass_on(ops->listen(inner, device, &handle, &made->inner)));
  listen = give_to_host(std::move(made));
  return ok();
}

Connection::Options plexus_net_context::options_of(const Subject& subject) {
  constexpr size_t kRequestsMax = 64;
  constexpr uint64_t kOdd = 0x9e3779b97f4a7c15u;  // gives neighbouring connections different seeds
  const uint64_t number = uint64_t{subject.connection} * 2 + (subject.is_send ? 1 : 0);
  return {ops,
          log,
          settings.script.effects_of(subject),
          seed ^ (number + 1) * kOdd,
          subject.is_send ? kRequestsMax * PLEXUS_NET_RECVS_MAX : kRequestsMax,
          &neighbours,
          &settings.block};
}

Result<Progress> plexus_net_context::connect(uint32_t device,
                                             const plexus_net_handle_t& handle,
                                             plexus_net_send_t*& send) {
  if (send == nullptr) {
    send = give_to_host(std::make_unique<plexus_net_send>(this, sends.fetch_add(1)));
  }
  settings.block.block_in("connect");
  PLEXUS_TRY(pass_on(ops->connect(inner, device, &handle, &send->connecting)));
  const auto options = options_of({.is_send = true, .device = device, .connection = send->number});
  send->connection = std::make_unique<SendConnection>(options, send->connecting);
  send->connecting = nullptr;
  return Progress::kDone;
}

Result<Progress> plexus_net_listen::accept(plexus_net_recv_t*& recv) const {
  if (recv == nullptr) {
    recv = give_to_host(std::make_unique<plexus_net_recv>(context));
  }
  context->settings.block.block_in("accept");
  PLEXUS_TRY(pass_on(context->ops->accept(inner, &recv->accepting)));
  const auto options = context->options_of(
      {.is_send = false, .device = device, .connection = context->recvs.fetch_add(1)});
  recv->connection = std::make_unique<RecvConnection>(options, recv->accepting);
  recv->accepting = nullptr;
  return Progress::kDone;
}

int32_t plexus_net_context::net_path(uint64_t source,
                                     uint64_t target,
                                     plexus_net_path_t& path) const {
  if (ops->net_path != nullptr) {
    return ops->net_path(inner, source, target, &path);
  }
  path = plexus::plugin::unknown_path(source == target ? PLEXUS_NET_LEVEL_SAME_DC
                                                       : PLEXUS_NET_LEVEL_UNKNOWN);
  return PLEXUS_OK;
}

PLEXUS_NET_PLUGIN("Chaos")
