// SPDX-License-Identifier: Apache-2.0
// net-socket that does what its environment says, for what the core says of plugins: it carries
// messages of up to PLEXUS_SCRIPTED_NET_BYTES, header included, and refuses to send or receive
// more; with PLEXUS_SCRIPTED_NET_PIECES=0 it takes no pieces. PLEXUS_SCRIPTED_NET_FAULT:
//   isend, irecv, connect, accept   that entry answers PLEXUS_AGAIN for ever, the first two after
//                                   some messages
//   size                            test says that a receive has one byte more, after some
//   request                         isend says PLEXUS_OK without a request, after some
//   slow                            isend sleeps for 3 ms
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <numeric>
#include <span>
#include <string>
#include <string_view>
#include <thread>

#include "plugin-api/plexus_net.h"

#include "tests/support/load_descriptor.hpp"

namespace {

plexus_log_fn say = nullptr;
plexus_log_sink_t* sink = nullptr;

const plexus_plugin_t& wrapped() {
  static const auto& kWrapped =
      plexus::test::load_descriptor<plexus_plugin_t>(PLEXUS_WRAPPED, "plexus_plugin_query");
  return kWrapped;
}
const plexus_net_ops_t& inner() { return *wrapped().net; }

uint64_t bytes_max() {
  const char* const setting = std::getenv("PLEXUS_SCRIPTED_NET_BYTES");
  return setting == nullptr ? PLEXUS_NET_MESSAGE_BYTES_MAX : std::stoull(setting);
}

bool has_fault(std::string_view name) {
  const char* const setting = std::getenv("PLEXUS_SCRIPTED_NET_FAULT");
  return setting != nullptr && name == setting;
}

/// From the 20th use on.
bool has_late_fault(std::string_view name) {
  static std::atomic<int> uses{0};
  constexpr int kUsesBefore = 20;
  return has_fault(name) && ++uses > kUsesBefore;
}

int32_t init(const plexus_net_config_t* config, plexus_net_context_t** context) {
  say = config->log;
  sink = config->log_sink;
  return inner().init(config, context);
}

int32_t properties(plexus_net_context_t* context, uint32_t device, plexus_net_properties_t* p) {
  const int32_t code = inner().properties(context, device, p);
  const char* const pieces = std::getenv("PLEXUS_SCRIPTED_NET_PIECES");
  p->message_bytes_max = bytes_max();
  p->takes_pieces = pieces == nullptr ? p->takes_pieces : 0;
  return code;
}

bool is_too_long(uint64_t size_bytes) {
  if (size_bytes <= bytes_max()) {
    return false;
  }
  say(sink, PLEXUS_LOG_ERROR, __FILE__, __LINE__, "a message is longer than the device carries");
  return true;
}

/// Works for pieces and for buffers.
template <class T>
bool are_too_long(uint32_t count, const T* parts) {
  const std::span all(parts, count);
  return is_too_long(
      std::accumulate(all.begin(), all.end(), uint64_t{0},
                      [](uint64_t sum, const T& part) { return sum + part.size_bytes; }));
}

int32_t connect(plexus_net_context_t* context,
                uint32_t device,
                const plexus_net_handle_t* handle,
                plexus_net_send_t** send) {
  return has_fault("connect") ? PLEXUS_AGAIN : inner().connect(context, device, handle, send);
}

int32_t accept(plexus_net_listen_t* listen, plexus_net_recv_t** recv) {
  return has_fault("accept") ? PLEXUS_AGAIN : inner().accept(listen, recv);
}

/// `start` is called unless a fault forbids it.
template <class Start>
int32_t send_message(bool is_refused, plexus_net_request_t** request, const Start& start) {
  if (is_refused) {
    return PLEXUS_INVALID_USAGE;
  }
  if (has_late_fault("isend")) {
    return PLEXUS_AGAIN;
  }
  if (has_fault("slow")) {
    std::this_thread::sleep_for(std::chrono::milliseconds(3));
  }
  const int32_t code = start();
  if (has_late_fault("request")) {
    *request = nullptr;
  }
  return code;
}

int32_t isend(plexus_net_send_t* send,
              const void* data,
              uint64_t size_bytes,
              int32_t tag,
              plexus_net_memory_t* memory,
              plexus_net_request_t** request) {
  return send_message(is_too_long(size_bytes), request,
                      [&] { return inner().isend(send, data, size_bytes, tag, memory, request); });
}

int32_t isend_pieces(plexus_net_send_t* send,
                     uint32_t count,
                     const plexus_net_piece_t* pieces,
                     int32_t tag,
                     plexus_net_request_t** request) {
  return send_message(are_too_long(count, pieces), request,
                      [&] { return inner().isend_pieces(send, count, pieces, tag, request); });
}

int32_t irecv(plexus_net_recv_t* recv,
              uint32_t count,
              const plexus_net_buffer_t* buffers,
              plexus_net_request_t** request) {
  return are_too_long(count, buffers) ? PLEXUS_INVALID_USAGE
         : has_late_fault("irecv")    ? PLEXUS_AGAIN
                                      : inner().irecv(recv, count, buffers, request);
}

int32_t irecv_pieces(plexus_net_recv_t* recv,
                     uint32_t count,
                     const plexus_net_piece_t* pieces,
                     int32_t tag,
                     plexus_net_request_t** request) {
  return are_too_long(count, pieces) ? PLEXUS_INVALID_USAGE
         : has_late_fault("irecv")   ? PLEXUS_AGAIN
                                     : inner().irecv_pieces(recv, count, pieces, tag, request);
}

int32_t test(plexus_net_request_t* request, uint64_t* sizes_bytes) {
  const int32_t code = inner().test(request, sizes_bytes);
  if (code == PLEXUS_OK && sizes_bytes != nullptr && has_late_fault("size")) {
    ++*sizes_bytes;
  }
  return code;
}

plexus_net_ops_t make_ops() {
  plexus_net_ops_t ops = inner();
  ops.init = init;
  ops.properties = properties;
  ops.connect = connect;
  ops.accept = accept;
  ops.test = test;
  ops.isend = isend;
  ops.irecv = irecv;
  ops.isend_pieces = isend_pieces;
  ops.irecv_pieces = irecv_pieces;
  return ops;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) const plexus_plugin_t* plexus_plugin_query(
    uint32_t) {
  static const plexus_net_ops_t kOps = make_ops();
  static const plexus_plugin_t kPlugin = [] {
    plexus_plugin_t plugin = wrapped();
    plugin.name = "scripted";
    plugin.net = &kOps;
    return plugin;
  }();
  return &kPlugin;
}
