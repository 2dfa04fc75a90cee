// SPDX-License-Identifier: Apache-2.0
// Plugins that a host must refuse, one per value of PLEXUS_BROKEN (CMakeLists.txt builds each).
// Each has a single fault, so that a refusal can only be due to that fault.
#include <cstdint>
#include <cstring>
#include <stdexcept>

#include "plugin-api/plexus_net.h"

#define SHORT_TABLE 1
#define WRONG_MAJOR 2
#define NO_SYMBOL 3
#define THROWING_INIT 4
#define THROWING_QUERY 5
#define REFUSING_HOST 6
#define BAD_PROPERTIES 7
#define FAILING_DEVICES 8
#define NULL_CONTEXT 9
#define THROWING_DATA 10
#define NULL_REQUEST 11

namespace {

/// The faults of calls that only a connection has.
constexpr bool kConnects = PLEXUS_BROKEN == THROWING_DATA || PLEXUS_BROKEN == NULL_REQUEST;
/// The handle of everything that a fixture that connects makes.
template <class Handle>
int32_t make(Handle** handle) {
  static char anything = 0;
  *handle = reinterpret_cast<Handle*>(&anything);
  return PLEXUS_OK;
}
/// In every call after connecting.
int32_t fail(int32_t code) {
  if (PLEXUS_BROKEN == THROWING_DATA) {
    throw std::runtime_error("no data today");
  }
  return PLEXUS_BROKEN == NULL_REQUEST ? PLEXUS_OK : code;
}

/// Number of contexts; the test reads it through `plexus_test_contexts`.
int contexts = 0;  // NOLINT(cppcoreguidelines-avoid-non-const-global-variables): a fixture

int32_t init(const plexus_net_config_t* config, plexus_net_context_t** context) {
  if (PLEXUS_BROKEN == THROWING_INIT) {
    throw std::runtime_error("no luck today");
  }
  static_cast<void>(config);
  if (PLEXUS_BROKEN != NULL_CONTEXT) {
    ++contexts;
    *context = reinterpret_cast<plexus_net_context_t*>(&contexts);
  }
  return PLEXUS_OK;
}
void finalize(plexus_net_context_t*) {
  --contexts;
  fail(PLEXUS_OK);
}
int32_t device_count(plexus_net_context_t*, uint32_t* count) {
  *count = 1;
  return PLEXUS_BROKEN == FAILING_DEVICES ? PLEXUS_SYSTEM_ERROR : PLEXUS_OK;
}
int32_t properties(plexus_net_context_t*, uint32_t, plexus_net_properties_t* properties) {
  if (kConnects) {
    std::strcpy(properties->name, "thrower");
    properties->message_bytes_max = 1;
    properties->speed_mbit_per_s = 1;
    properties->rail_id = -1;
    properties->plane_id = -1;
    properties->pointer_support = PLEXUS_MEMORY_HOST;
    properties->comms_max = 1;
    properties->recvs_max = 1;
    properties->requests_max = 8;
    properties->takes_pieces = 1;
  }
  return PLEXUS_OK;
}
int32_t listen(plexus_net_context_t*, uint32_t, plexus_net_handle_t*, plexus_net_listen_t** made) {
  return kConnects ? make(made) : PLEXUS_AGAIN;
}
int32_t connect(plexus_net_context_t*,
                uint32_t,
                const plexus_net_handle_t*,
                plexus_net_send_t** made) {
  return kConnects ? make(made) : PLEXUS_AGAIN;
}
int32_t accept(plexus_net_listen_t*, plexus_net_recv_t** made) {
  return kConnects ? make(made) : PLEXUS_AGAIN;
}
int32_t register_send(plexus_net_send_t*, const plexus_net_region_t*, plexus_net_memory_t** made) {
  return kConnects ? make(made) : PLEXUS_OK;
}
int32_t register_recv(plexus_net_recv_t*, const plexus_net_region_t*, plexus_net_memory_t**) {
  return PLEXUS_OK;
}
int32_t deregister(plexus_net_memory_t*) { return fail(PLEXUS_OK); }
int32_t isend(plexus_net_send_t*,
              const void*,
              uint64_t,
              int32_t,
              plexus_net_memory_t*,
              plexus_net_request_t**) {
  return fail(PLEXUS_AGAIN);
}
int32_t irecv(plexus_net_recv_t*, uint32_t, const plexus_net_buffer_t*, plexus_net_request_t**) {
  return fail(PLEXUS_AGAIN);
}
int32_t test(plexus_net_request_t*, uint64_t*) { return fail(PLEXUS_AGAIN); }
void close_send(plexus_net_send_t*) { fail(PLEXUS_OK); }
void close_recv(plexus_net_recv_t*) { fail(PLEXUS_OK); }
void close_listen(plexus_net_listen_t*) { fail(PLEXUS_OK); }
int32_t flush(plexus_net_recv_t*, uint32_t, const plexus_net_buffer_t*, plexus_net_request_t**) {
  return fail(PLEXUS_AGAIN);
}
int32_t isend_pieces(
    plexus_net_send_t*, uint32_t, const plexus_net_piece_t*, int32_t, plexus_net_request_t**) {
  return fail(PLEXUS_AGAIN);
}
int32_t irecv_pieces(
    plexus_net_recv_t*, uint32_t, const plexus_net_piece_t*, int32_t, plexus_net_request_t**) {
  return fail(PLEXUS_AGAIN);
}
int32_t isend_gathered(
    plexus_net_send_t*, uint32_t, const plexus_net_source_t*, int32_t, plexus_net_request_t**) {
  return fail(PLEXUS_AGAIN);
}

constexpr uint32_t kTableBytes = PLEXUS_BROKEN == SHORT_TABLE ? 64 : sizeof(plexus_net_ops_t);
constexpr uint32_t kMajor = PLEXUS_BROKEN == WRONG_MAJOR ? PLEXUS_ABI_MAJOR + 1 : PLEXUS_ABI_MAJOR;

constexpr plexus_net_ops_t kOps = {
    kTableBytes,  0,       init,         finalize,      device_count,  properties,
    listen,       connect, accept,       register_send, register_recv, deregister,
    isend,        irecv,   flush,        test,          close_send,    close_recv,
    close_listen, nullptr, isend_pieces, irecv_pieces,  isend_gathered};
constexpr plexus_plugin_t kPlugin = {PLEXUS_PLUGIN_MAGIC,
                                     sizeof(plexus_plugin_t),
                                     kMajor,
                                     0,
                                     PLEXUS_KIND_NET,
                                     0,
                                     "broken",
                                     "1",
                                     &kOps,
                                     nullptr};

}  // namespace

extern "C" PLEXUS_PLUGIN_EXPORT int plexus_test_contexts() { return contexts; }

#if PLEXUS_BROKEN == NO_SYMBOL
extern "C" PLEXUS_PLUGIN_EXPORT const plexus_plugin_t* plexus_plugin_query_in_another_name() {
  return &kPlugin;
}
#else
const plexus_plugin_t* plexus_plugin_query(uint32_t) {
  if (PLEXUS_BROKEN == THROWING_QUERY) {
    throw 42;
  }
  return PLEXUS_BROKEN == REFUSING_HOST ? nullptr : &kPlugin;
}
#endif
