// SPDX-License-Identifier: Apache-2.0
#include "plugins/net-ib/verbs.hpp"

#include <cerrno>
#include <dlfcn.h>

#include "plugins/support/errno_text.hpp"
#include "plugins/support/unique_fd.hpp"

namespace plexus::net_ib {
namespace {

template <class Function>
void find_symbol(void* file, const char* name, Function& function) {
  function = reinterpret_cast<Function>(::dlsym(file, name));
}

template <class Function>
void need_symbol(void* file, const char* name, Function& function, std::string& problem) {
  find_symbol(file, name, function);
  if (function == nullptr && problem.empty()) {
    problem = fmt::format("libibverbs.so.1 has no {}: rdma-core 32 or newer is needed", name);
  }
}

Verbs load_verbs() {
  Verbs table;
  void* const file = ::dlopen("libibverbs.so.1", RTLD_NOW | RTLD_LOCAL);
  if (file == nullptr) {
    const char* const reason = ::dlerror();  // NOLINT(concurrency-mt-unsafe): inside a static init
    table.problem = reason == nullptr ? "libibverbs.so.1 cannot be loaded" : reason;
    return table;
  }
  const auto need = [&](const char* name, auto& function) {
    need_symbol(file, name, function, table.problem);
  };
  need("ibv_get_device_list", table.get_device_list);
  need("ibv_free_device_list", table.free_device_list);
  need("ibv_open_device", table.open_device);
  need("ibv_close_device", table.close_device);
  need("ibv_query_device", table.query_device);
  need("ibv_query_port", table.query_port);
  need("_ibv_query_gid_table", table.query_gid_table);
  need("ibv_alloc_pd", table.alloc_pd);
  need("ibv_dealloc_pd", table.dealloc_pd);
  need("ibv_reg_mr_iova2", table.reg_mr);
  need("ibv_dereg_mr", table.dereg_mr);
  need("ibv_create_cq", table.create_cq);
  need("ibv_destroy_cq", table.destroy_cq);
  need("ibv_create_qp", table.create_qp);
  need("ibv_modify_qp", table.modify_qp);
  need("ibv_destroy_qp", table.destroy_qp);
  need("ibv_get_async_event", table.get_async_event);
  need("ibv_ack_async_event", table.ack_async_event);
  need("ibv_event_type_str", table.event_type_str);
  need("ibv_wc_status_str", table.wc_status_str);
  find_symbol(file, "ibv_reg_dmabuf_mr", table.reg_dmabuf_mr);
  find_symbol(file, "ibv_query_ece", table.query_ece);
  find_symbol(file, "ibv_set_ece", table.set_ece);
  // Before anything is registered: on kernels before 5.12 a fork would take registered pages from
  // the parent otherwise. Fails where another library of the process has registered memory already.
  decltype(&::ibv_fork_init) fork_init = nullptr;
  find_symbol(file, "ibv_fork_init", fork_init);
  table.is_fork_safe = fork_init != nullptr && fork_init() == 0;
  return table;
}

}  // namespace

const Verbs& verbs() {
  static const Verbs kVerbs = load_verbs();
  return kVerbs;
}

ContextPtr open_device(ibv_device* device) {
  ContextPtr context(verbs().open_device(device));
  if (context != nullptr) {
    plugin::OpenFds::watch(context->cmd_fd);
    plugin::OpenFds::watch(context->async_fd);
  }
  return context;
}

void VerbsDeleter::operator()(ibv_context* it) const noexcept {
  plugin::OpenFds::forget(it->cmd_fd);
  plugin::OpenFds::forget(it->async_fd);
  verbs().close_device(it);
}

Result<ibv_port_attr> query_port(ibv_context* context, uint8_t port) {
  ibv_port_attr attributes{};
  const verbs_context* const extended =
      __extension__ verbs_get_ctx_op(context, query_port);  // a statement expression
  const int error = extended != nullptr
                        ? extended->query_port(context, port, &attributes, sizeof attributes)
                        : verbs().query_port(context, port,
                                             reinterpret_cast<_compat_ibv_port_attr*>(&attributes));
  if (error != 0) {
    return fail(PLEXUS_SYSTEM_ERROR, "cannot query port {} of {}: {}", port, context->device->name,
                plugin::errno_text(error));
  }
  return attributes;
}

}  // namespace plexus::net_ib
