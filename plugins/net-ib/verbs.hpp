// SPDX-License-Identifier: Apache-2.0
// libibverbs, loaded at run time, so that the plugin also loads where rdma-core is absent. The
// data path (post, poll) goes through a device's own table and needs no symbol of the library.
// The owners of its objects are here too.
//
// Threads: any; the table is constant once loaded.
#pragma once

#include <infiniband/verbs.h>
#include <memory>
#include <string>

#include "plugins/support/result.hpp"

namespace plexus::net_ib {

using plugin::fail;
using plugin::Failure;
using plugin::ok;
using plugin::Progress;
using plugin::Result;

struct Verbs {
  decltype(&::ibv_get_device_list) get_device_list = nullptr;
  decltype(&::ibv_free_device_list) free_device_list = nullptr;
  decltype(&::ibv_open_device) open_device = nullptr;
  decltype(&::ibv_close_device) close_device = nullptr;
  decltype(&::ibv_query_device) query_device = nullptr;
  decltype(&::ibv_query_port) query_port = nullptr;
  decltype(&::_ibv_query_gid_table) query_gid_table = nullptr;
  decltype(&::ibv_alloc_pd) alloc_pd = nullptr;
  decltype(&::ibv_dealloc_pd) dealloc_pd = nullptr;
  decltype(&::ibv_reg_mr_iova2) reg_mr = nullptr;
  decltype(&::ibv_reg_dmabuf_mr) reg_dmabuf_mr = nullptr;  // optional
  decltype(&::ibv_dereg_mr) dereg_mr = nullptr;
  decltype(&::ibv_create_cq) create_cq = nullptr;
  decltype(&::ibv_destroy_cq) destroy_cq = nullptr;
  decltype(&::ibv_create_qp) create_qp = nullptr;
  decltype(&::ibv_modify_qp) modify_qp = nullptr;
  decltype(&::ibv_destroy_qp) destroy_qp = nullptr;
  decltype(&::ibv_get_async_event) get_async_event = nullptr;
  decltype(&::ibv_ack_async_event) ack_async_event = nullptr;
  decltype(&::ibv_event_type_str) event_type_str = nullptr;
  decltype(&::ibv_wc_status_str) wc_status_str = nullptr;
  decltype(&::ibv_query_ece) query_ece = nullptr;  // optional
  decltype(&::ibv_set_ece) set_ece = nullptr;      // optional
  bool is_fork_safe = false;  // a fork leaves registered memory to this process
  std::string problem;        // why it cannot be used; empty: it can
};

/// Loads the library on the first call. It is never closed.
[[nodiscard]] const Verbs& verbs();

/// Attributes of `port`, with all fields that the driver knows.
[[nodiscard]] Result<ibv_port_attr> query_port(ibv_context* context, uint8_t port);

struct VerbsDeleter {
  void operator()(ibv_context* it) const noexcept;
  void operator()(ibv_pd* it) const noexcept { verbs().dealloc_pd(it); }
  void operator()(ibv_mr* it) const noexcept { verbs().dereg_mr(it); }
  void operator()(ibv_cq* it) const noexcept { verbs().destroy_cq(it); }
  void operator()(ibv_qp* it) const noexcept { verbs().destroy_qp(it); }
};
using ContextPtr = std::unique_ptr<ibv_context, VerbsDeleter>;
using PdPtr = std::unique_ptr<ibv_pd, VerbsDeleter>;
using MrPtr = std::unique_ptr<ibv_mr, VerbsDeleter>;
using CqPtr = std::unique_ptr<ibv_cq, VerbsDeleter>;
using QpPtr = std::unique_ptr<ibv_qp, VerbsDeleter>;

/// Null: see errno. A child made by fork closes the descriptors of the device, so that nothing in
/// it can end what its parent made.
[[nodiscard]] ContextPtr open_device(ibv_device* device);

}  // namespace plexus::net_ib
