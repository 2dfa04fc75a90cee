// SPDX-License-Identifier: Apache-2.0
// What reads the tables of all versions (choose.cpp), parted by when they are initialised:
//
//   TableNet      entries that are the same in all versions, and the choice by an entry's type
//   OnceNet       v6 to v10 and cross-dc: one init per process, no context
//   CommNet       v11 and v12: init and finalize per communicator
//
// Each entry is read from the plugin's table at each call, because plugins change their tables.
#pragma once

#include <type_traits>

#include "plugin-api/nccl/net_v6.h"

#include "core/plugin/nccl_net/log.hpp"
#include "core/plugin/nccl_net/net.hpp"

namespace plexus::nccl_net {

/// Answers a plugin's profiler events when no profiler is loaded, as NCCL does.
inline int32_t ignore_event(void**, int, void*, int64_t, void*) { return PLEXUS_OK; }

/// The fields that the properties of a version have; of those that it lacks, what NCCL takes.
template <class Properties>
void copy_properties(const Properties& from, nccl_net_properties_v12_t& to) {
  if constexpr (std::is_same_v<Properties, nccl_net_properties_v12_t>) {
    to = from;
    return;
  }
  to.name = from.name;
  to.pci_path = from.pci_path;
  to.guid = from.guid;
  to.pointer_support = from.pointer_support;
  to.speed = from.speed;
  to.port = from.port;
  to.latency = from.latency;
  to.comms_max = from.comms_max;
  to.recvs_max = from.recvs_max;
  to.device_type = NCCL_DEVICE_TYPE_HOST;
  to.p2p_bytes_max = NCCL_P2P_BYTES_BEFORE_V9;
  to.coll_bytes_max = NCCL_COLL_BYTES_BEFORE_V9;
  to.multi_request_max = 1;
  to.rail_id = -1;
  to.plane_id = -1;
  if constexpr (requires { from.device_type; }) {  // v7
    to.device_type = from.device_type;
    to.device_version = from.device_version;
  }
  if constexpr (requires { from.registration_is_global; }) {  // v8
    to.registration_is_global = from.registration_is_global;
  }
  if constexpr (requires { from.p2p_bytes_max; }) {  // v9
    to.force_flush = from.force_flush;
    to.p2p_bytes_max = from.p2p_bytes_max;
    to.coll_bytes_max = from.coll_bytes_max;
  }
  if constexpr (requires { from.multi_request_max; }) {  // v11
    to.multi_request_max = from.multi_request_max;
  }
}

/// Converts a size for a table with int; the adapter has clamped it.
inline int to_int(size_t size) { return static_cast<int>(size); }

template <class Table>
class TableNet : public Net {
 public:
  explicit TableNet(const void* table) : table_(static_cast<const Table*>(table)) {}

  [[nodiscard]] uint32_t requests_max() const noexcept override {
    return std::is_same_v<Table, nccl_net_v6_t> ? NCCL_REQUESTS_MAX_V6 : NCCL_REQUESTS_MAX;
  }
  [[nodiscard]] const char* name() const noexcept override { return table_->name; }
  [[nodiscard]] uint64_t region_bytes_max() const noexcept override {
    return std::is_same_v<decltype(Table::register_memory), nccl_register_v6_fn> ? INT32_MAX
                                                                                 : UINT64_MAX;
  }
  [[nodiscard]] bool has_dmabuf() const noexcept override {
    return table_->register_dmabuf != nullptr;
  }

  [[nodiscard]] const char* find_missing_entry() const noexcept override {
    const struct {
      const char* name;
      bool present;
    } entries[] = {
        {"init", table_->init != nullptr},
        {"devices", table_->devices != nullptr},
        {"getProperties", table_->get_properties != nullptr},
        {"listen", table_->listen != nullptr},
        {"connect", table_->connect != nullptr},
        {"accept", table_->accept != nullptr},
        {"regMr", table_->register_memory != nullptr},
        {"deregMr", table_->deregister != nullptr},
        {"isend", table_->isend != nullptr},
        {"irecv", table_->irecv != nullptr},
        {"test", table_->test != nullptr},
        {"closeSend", table_->close_send != nullptr},
        {"closeRecv", table_->close_recv != nullptr},
        {"closeListen", table_->close_listen != nullptr},
    };
    for (const auto& entry : entries) {
      if (!entry.present) {
        return entry.name;
      }
    }
    return nullptr;
  }

  [[nodiscard]] int32_t devices(int& count) const override { return table_->devices(&count); }

  [[nodiscard]] int32_t accept(void* listen,
                               void** recv,
                               [[maybe_unused]] nccl_device_handle_t** offload) const override {
    if constexpr (std::is_same_v<decltype(Table::accept), nccl_accept_v6_fn>) {
      return table_->accept(listen, recv);
    } else {
      return table_->accept(listen, recv, offload);
    }
  }

  [[nodiscard]] int32_t register_memory(void* connection,
                                        const plexus_net_region_t& region,
                                        void** memory) const override {
    if (region.kind == PLEXUS_MEMORY_DMABUF) {
      return table_->register_dmabuf(connection, region.data, region.size_bytes, NCCL_MEMORY_CUDA,
                                     region.dmabuf_offset_bytes, region.dmabuf_fd, memory);
    }
    const int kind = region.kind == PLEXUS_MEMORY_HOST ? NCCL_MEMORY_HOST : NCCL_MEMORY_CUDA;
    if constexpr (std::is_same_v<decltype(Table::register_memory), nccl_register_v6_fn>) {
      return table_->register_memory(connection, region.data, to_int(region.size_bytes), kind,
                                     memory);
    } else {
      return table_->register_memory(connection, region.data, region.size_bytes, kind, memory);
    }
  }

  [[nodiscard]] int32_t deregister(void* connection, void* memory) const override {
    return table_->deregister(connection, memory);
  }

  [[nodiscard]] int32_t isend(void* send,
                              void* data,
                              size_t size,
                              int tag,
                              void* memory,
                              [[maybe_unused]] void* profile,
                              void** request) const override {
    using Isend = decltype(Table::isend);
    if constexpr (std::is_same_v<Isend, nccl_isend_v6_fn>) {
      return table_->isend(send, data, to_int(size), tag, memory, request);
    } else if constexpr (std::is_same_v<Isend, nccl_isend_v9_fn>) {
      return table_->isend(send, data, size, tag, memory, request);
    } else {
      return table_->isend(send, data, size, tag, memory, profile, request);
    }
  }

  [[nodiscard]] int32_t irecv(void* recv, Buffers& buffers, void** request) const override {
    using Irecv = decltype(Table::irecv);
    if constexpr (std::is_same_v<Irecv, nccl_irecv_v6_fn>) {
      IntSizes sizes = to_int_sizes(buffers);
      return table_->irecv(recv, buffers.count, buffers.data.data(), sizes.data(),
                           buffers.tags.data(), buffers.memory.data(), request);
    } else if constexpr (std::is_same_v<Irecv, nccl_irecv_v9_fn>) {
      return table_->irecv(recv, buffers.count, buffers.data.data(), buffers.sizes.data(),
                           buffers.tags.data(), buffers.memory.data(), request);
    } else {
      return table_->irecv(recv, buffers.count, buffers.data.data(), buffers.sizes.data(),
                           buffers.tags.data(), buffers.memory.data(), buffers.profiles, request);
    }
  }

  [[nodiscard]] int32_t iflush(void* recv, Buffers& buffers, void** request) const override {
    if (table_->iflush == nullptr) {
      return PLEXUS_OK;  // the request stays null: nothing to wait for
    }
    IntSizes sizes = to_int_sizes(buffers);
    return table_->iflush(recv, buffers.count, buffers.data.data(), sizes.data(),
                          buffers.memory.data(), request);
  }

  [[nodiscard]] int32_t test(void* request, int* is_done, int* sizes) const override {
    return table_->test(request, is_done, sizes);
  }

  // A failure to close has no consequence.
  void close_send(void* send) const override { table_->close_send(send); }
  void close_recv(void* recv) const override { table_->close_recv(recv); }
  void close_listen(void* listen) const override { table_->close_listen(listen); }

 protected:
  [[nodiscard]] const Table& table() const noexcept { return *table_; }

 private:
  using IntSizes = std::array<int, PLEXUS_NET_RECVS_MAX>;
  static IntSizes to_int_sizes(const Buffers& buffers) {
    IntSizes sizes{};
    for (size_t i = 0; i < sizes.size(); ++i) {
      sizes[i] = to_int(buffers.sizes[i]);
    }
    return sizes;
  }

  const Table* table_;  // the plugin's own, in a library that is never unloaded
};

template <class Table>
class OnceNet : public TableNet<Table> {
 public:
  using TableNet<Table>::TableNet;
  using TableNet<Table>::table;

  [[nodiscard]] bool is_per_communicator() const noexcept override { return false; }
  [[nodiscard]] int32_t init(CommState&, uint64_t) const override {
    if constexpr (std::is_same_v<decltype(Table::init), nccl_init_v6_fn>) {
      return table().init(&log_from_nccl_plugin);
    } else {
      return table().init(&log_from_nccl_plugin, &ignore_event);
    }
  }
  void finalize(CommState&) const override {}
  [[nodiscard]] int32_t listen(CommState&, int device, void* handle, void** out) const override {
    return table().listen(device, handle, out);
  }
  [[nodiscard]] int32_t connect(CommState& comm,
                                int device,
                                void* handle,
                                void** send,
                                [[maybe_unused]] nccl_device_handle_t** offload) const override {
    using Connect = decltype(Table::connect);
    if constexpr (std::is_same_v<Connect, nccl_connect_v6_fn>) {
      return table().connect(device, handle, send);
    } else if constexpr (std::is_same_v<Connect, nccl_connect_v7_fn>) {
      return table().connect(device, handle, send, offload);
    } else {
      return table().connect(device, &comm.config, handle, send, offload);
    }
  }
};

template <class Table>
class CommNet : public TableNet<Table> {
 public:
  using TableNet<Table>::TableNet;
  using TableNet<Table>::table;

  [[nodiscard]] bool is_per_communicator() const noexcept override { return true; }
  [[nodiscard]] int32_t init(CommState& comm, uint64_t comm_id) const override {
    return table().init(&comm.context, comm_id, &comm.config, &log_from_nccl_plugin, &ignore_event);
  }
  void finalize(CommState& comm) const override {
    if (table().finalize != nullptr) {
      table().finalize(comm.context);
    }
  }
  [[nodiscard]] int32_t listen(CommState& comm,
                               int device,
                               void* handle,
                               void** out) const override {
    return table().listen(comm.context, device, handle, out);
  }
  [[nodiscard]] int32_t connect(CommState& comm,
                                int device,
                                void* handle,
                                void** send,
                                nccl_device_handle_t** offload) const override {
    return table().connect(comm.context, device, handle, send, offload);
  }
};

}  // namespace plexus::nccl_net
