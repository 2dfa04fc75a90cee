// SPDX-License-Identifier: Apache-2.0
// net-jail: a net plugin that runs in a process of its own. This file has the structs behind the
// host's handles; the table is that of plugins/support/net_table.hpp.
#include <memory>
#include <utility>

#include "plugin-api/plexus_net.h"

#include "plugins/net-jail/cell.hpp"
#include "plugins/net-jail/connection.hpp"
#include "plugins/support/net_table.hpp"

using plexus::net_jail::Call;
using plexus::net_jail::Cell;
using plexus::net_jail::Connection;
using plexus::net_jail::Entry;
using plexus::net_jail::read_text;
using plexus::plugin::fail;
using plexus::plugin::give_to_host;
using plexus::plugin::Log;
using plexus::plugin::ok;
using plexus::plugin::Result;

struct plexus_net_context {
  plexus_net_context(const Log& own_log, std::unique_ptr<Cell> own_cell)
      : log(own_log), cell(std::move(own_cell)) {}
  plexus_net_context(const plexus_net_context&) = delete;
  plexus_net_context& operator=(const plexus_net_context&) = delete;
  ~plexus_net_context() {
    cell->call(
        Entry::kFinalize, [](Call&) {}, [](const Call&) {});
  }
  static Result<void> open(const plexus_net_config_t& config,
                           const Log& log,
                           plexus_net_context_t*& context);
  int32_t count_devices(uint32_t& count) const;
  int32_t read_properties(uint32_t device, plexus_net_properties_t& result) const;
  int32_t listen(uint32_t device, plexus_net_handle_t& handle, plexus_net_listen_t*& listen);
  int32_t connect(uint32_t device, const plexus_net_handle_t& handle, plexus_net_send_t*& send);
  int32_t net_path(uint64_t source, uint64_t target, plexus_net_path_t& path) const;
  static int32_t deregister(plexus_net_memory_t* memory) {
    return plexus::plugin::guard(memory->connection->log(),
                                 [&] { return memory->connection->deregister(memory); });
  }
  static int32_t test(plexus_net_request_t* request, uint64_t* sizes_bytes) {
    return plexus::plugin::test_request(*request, sizes_bytes);
  }
  /// Closes an object of the helper; 0: there is none.
  void close(Entry entry, uint64_t object) const {
    if (object != 0) {
      cell->call(
          entry, [&](Call& call) { call.object = object; }, [](const Call&) {});
    }
  }

  Log log;
  std::unique_ptr<Cell> cell;
};

/// An end of a connection, of which `object` is the helper's while it is not connected, too.
struct End {
  End(plexus_net_context_t* owner, bool sends) : context(owner), is_send(sends) {}
  End(const End&) = delete;
  End& operator=(const End&) = delete;
  ~End() { context->close(is_send ? Entry::kCloseSend : Entry::kCloseRecv, object); }
  int32_t progress(int32_t code) {
    if (code == PLEXUS_OK) {
      connection = std::make_unique<Connection>(*context->cell, context->log, object, is_send);
    }
    return code;
  }

  plexus_net_context_t* context;
  bool is_send;
  uint64_t object = 0;
  std::unique_ptr<Connection> connection;
};
struct plexus_net_send : End {
  explicit plexus_net_send(plexus_net_context_t* owner) : End(owner, true) {}
};
struct plexus_net_recv : End {
  explicit plexus_net_recv(plexus_net_context_t* owner) : End(owner, false) {}
};

struct plexus_net_listen {
  plexus_net_listen(plexus_net_context_t* owner, uint64_t of_helper)
      : context(owner), object(of_helper) {}
  plexus_net_listen(const plexus_net_listen&) = delete;
  plexus_net_listen& operator=(const plexus_net_listen&) = delete;
  ~plexus_net_listen() { context->close(Entry::kCloseListen, object); }
  int32_t accept(plexus_net_recv_t*& recv) const;

  plexus_net_context_t* context;
  uint64_t object;
};

Result<void> plexus_net_context::open(const plexus_net_config_t& config,
                                      const Log& log,
                                      plexus_net_context_t*& context) {
  const plexus::plugin::SettingReader read(config);
  const char* const name = read("PLEXUS_JAIL_NET");
  PLEXUS_TRY(cell, Cell::start(log, read, name == nullptr || *name == '\0' ? "net-socket" : name));
  const int32_t code = cell->call(
      Entry::kInit,
      [&](Call& call) {
        call.comm_id = config.comm_id;
        call.traffic_class = config.traffic_class;
      },
      [](const Call&) {});
  PLEXUS_TRY(plexus::plugin::pass_on(code));
  context = give_to_host(std::make_unique<plexus_net_context>(log, std::move(cell)));
  return ok();
}

int32_t plexus_net_context::count_devices(uint32_t& count) const {
  return cell->call(
      Entry::kDeviceCount, [](Call&) {}, [&](const Call& call) { count = call.device; });
}

int32_t plexus_net_context::read_properties(uint32_t device,
                                            plexus_net_properties_t& result) const {
  const int32_t code = cell->call(
      Entry::kProperties, [&](Call& call) { call.device = device; },
      [&](const Call& call) { result = call.properties; });
  if (code == PLEXUS_OK) {
    result.name[sizeof(result.name) - 1] = '\0';
    result.pci_path[sizeof(result.pci_path) - 1] = '\0';
    result.pointer_support = PLEXUS_MEMORY_HOST;
    result.takes_pieces = 0;
    result.registration_is_global = 0;  // every registration has a copy of its own
    result.force_flush = 0;
  }
  return code;
}

int32_t plexus_net_context::listen(uint32_t device,
                                   plexus_net_handle_t& handle,
                                   plexus_net_listen_t*& listen) {
  return cell->call(
      Entry::kListen, [&](Call& call) { call.device = device; },
      [&](const Call& call) {
        handle = call.handle;
        listen = give_to_host(std::make_unique<plexus_net_listen>(this, call.made));
      });
}

int32_t plexus_net_context::connect(uint32_t device,
                                    const plexus_net_handle_t& handle,
                                    plexus_net_send_t*& send) {
  if (send == nullptr) {
    send = give_to_host(std::make_unique<plexus_net_send>(this));
  }
  return send->progress(cell->call_to_make(
      Entry::kConnect,
      [&](Call& call) {
        call.device = device;
        call.handle = handle;
      },
      send->object));
}

int32_t plexus_net_listen::accept(plexus_net_recv_t*& recv) const {
  if (recv == nullptr) {
    recv = give_to_host(std::make_unique<plexus_net_recv>(context));
  }
  return recv->progress(context->cell->call_to_make(
      Entry::kAccept, [&](Call& call) { call.object = object; }, recv->object));
}

int32_t plexus_net_context::net_path(uint64_t source,
                                     uint64_t target,
                                     plexus_net_path_t& path) const {
  return cell->call(
      Entry::kNetPath,
      [&](Call& call) {
        call.source = source;
        call.target = target;
      },
      [&](const Call& call) { path = call.path; });
}

PLEXUS_NET_PLUGIN("Jail")
