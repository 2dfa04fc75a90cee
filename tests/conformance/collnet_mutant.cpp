// SPDX-License-Identifier: Apache-2.0
// Intentionally wrong: collnet-aggregator with the fault that PLEXUS_MUTANT names. Handles are the
// wrapped plugin's. mutants_test.py says which check must detect which mutant. Without
// PLEXUS_MUTANT it is correct.
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <fcntl.h>
#include <stdexcept>
#include <thread>

#include "plugin-api/plexus_collnet.h"

#include "tests/conformance/mutant.hpp"
#include "tests/support/load_descriptor.hpp"

namespace {

const plexus_collnet_plugin_t& wrapped() {
  static const auto& kWrapped = plexus::test::load_descriptor<plexus_collnet_plugin_t>(
      std::getenv("PLEXUS_MUTANT_OF_COLLNET"), "plexus_collnet_query");
  return kWrapped;
}
const plexus_collnet_ops_t& inner() { return *wrapped().ops; }

void sleep_ms(int time) { std::this_thread::sleep_for(std::chrono::milliseconds(time)); }

std::atomic<int> asked{0};

int32_t init(const plexus_collnet_config_t* config, plexus_collnet_context_t** context) {
  if (is_mutant("init_environment")) {
    setenv("PLEXUS_MUTANT_WAS_HERE", "1", 1);
  }
  if (is_mutant("init_leaks_descriptor") && open("/dev/null", O_RDONLY | O_CLOEXEC) < 0) {
    return PLEXUS_SYSTEM_ERROR;
  }
  return inner().init(config, context);
}

int32_t properties(plexus_collnet_context_t* context,
                   uint32_t device,
                   plexus_collnet_properties_t* p) {
  const int32_t code = inner().properties(context, device, p);
  if (is_mutant("reserved_written")) {
    p->reserved[2] = 1;
  }
  if (is_mutant("requests_too_many")) {
    p->requests_max = 64;
  }
  return code;
}

int32_t reduce_support(plexus_collnet_context_t* context, int32_t type, int32_t op, uint32_t* is) {
  const int32_t code = inner().reduce_support(context, type, op, is);
  if (is_mutant("support_all")) {
    *is = 1;
  }
  if (is_mutant("support_changes") && ++asked % 2 == 0) {
    *is = 0;
  }
  return code;
}

int32_t start_listening(plexus_collnet_context_t* context,
                        uint32_t device,
                        plexus_net_handle_t* handle,
                        plexus_collnet_listen_t** listen) {
  return inner().listen(context, is_mutant("listen_any_device") ? 0 : device, handle, listen);
}

int32_t connect(plexus_collnet_listen_t* listen,
                const plexus_net_handle_t* handles,
                uint32_t members,
                uint32_t member,
                plexus_collnet_group_t** group) {
  if (is_mutant("connect_sleeps")) {
    sleep_ms(700);
  }
  if (is_mutant("connect_throws")) {
    throw std::runtime_error("thrown by a mutant");
  }
  const int32_t code = inner().connect(listen, handles, members, member, group);
  return is_mutant("connect_lies") && code == PLEXUS_AGAIN ? PLEXUS_OK : code;
}

int32_t iallreduce(plexus_collnet_group_t* group,
                   const plexus_collnet_reduction_t* reduction,
                   plexus_collnet_request_t** request) {
  plexus_collnet_reduction_t changed = *reduction;
  if (is_mutant("reduce_wrong_op") && changed.op == PLEXUS_REDUCE_MIN) {
    changed.op = PLEXUS_REDUCE_MAX;
  }
  if (is_mutant("reduce_signed") && changed.type == PLEXUS_TYPE_UINT32) {
    changed.type = PLEXUS_TYPE_INT32;
  }
  if (is_mutant("reduce_short") && changed.count > 4096) {
    --changed.count;
  }
  const int32_t code = inner().iallreduce(group, &changed, request);
  if (is_mutant("reduce_writes_send") && code == PLEXUS_OK && changed.send != changed.recv) {
    static_cast<std::byte*>(const_cast<void*>(changed.send))[0] ^= std::byte{1};
  }
  return code;
}

int32_t test(plexus_collnet_request_t* request) {
  const int32_t code = inner().test(request);
  return is_mutant("test_early") && code == PLEXUS_AGAIN ? PLEXUS_OK : code;
}

void close_group(plexus_collnet_group_t* group) {
  if (!is_mutant("close_leaks")) {
    inner().close_group(group);
  }
}

plexus_collnet_ops_t make_ops() {
  plexus_collnet_ops_t ops = inner();
  ops.init = init;
  ops.properties = properties;
  ops.reduce_support = reduce_support;
  ops.listen = start_listening;
  ops.connect = connect;
  ops.iallreduce = iallreduce;
  ops.test = test;
  ops.close_group = close_group;
  return ops;
}

plexus_collnet_plugin_t make_plugin() {
  static const plexus_collnet_ops_t kOps = make_ops();
  plexus_collnet_plugin_t plugin = wrapped();
  plugin.name = "Mutant";
  plugin.ops = &kOps;
  return plugin;
}

}  // namespace

const plexus_collnet_plugin_t* plexus_collnet_query(uint32_t host_abi) {
  static const plexus_collnet_plugin_t kPlugin = make_plugin();
  return host_abi >> 16 == PLEXUS_ABI_MAJOR ? &kPlugin : nullptr;
}
