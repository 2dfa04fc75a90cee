// SPDX-License-Identifier: Apache-2.0
// net-socket as a plugin that gathers registered memory, and that is strict about it: what is sent
// must lie in memory that is registered with its connection from isend until test says that it is
// done, which it never says at once, and registrations must go before their connection.
// `gathered_bytes` says how much was sent from several places, `live_registrations` how much memory
// is registered for sending.
#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <map>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include "plugin-api/plexus_net.h"

#include "tests/support/load_descriptor.hpp"

struct plexus_net_memory {
  plexus_net_send_t* send;
  const std::byte* begin;
  uint64_t size_bytes;
};

extern "C" {
__attribute__((visibility("default"))) uint64_t gathered_bytes();
__attribute__((visibility("default"))) uint64_t live_registrations();
}

namespace {

plexus_log_fn say = nullptr;
plexus_log_sink_t* sink = nullptr;
std::atomic<uint64_t> gathered{0};
std::mutex mutex;
// Both guarded by mutex; numbers, because addresses are used again.
uint64_t last_number = 0;
std::map<const plexus_net_memory_t*, uint64_t> live;
struct Gathered {
  std::vector<uint64_t> memory;
  int tests_left = 0;  // before it may be done
};
std::map<const plexus_net_request_t*, Gathered> under_way;

const plexus_plugin_t& wrapped() {
  static const auto& kWrapped =
      plexus::test::load_descriptor<plexus_plugin_t>(PLEXUS_WRAPPED, "plexus_plugin_query");
  return kWrapped;
}
const plexus_net_ops_t& inner() { return *wrapped().net; }

int32_t refuse(const char* text) {
  say(sink, PLEXUS_LOG_ERROR, __FILE__, __LINE__, text);
  return PLEXUS_INTERNAL_ERROR;
}

int32_t init(const plexus_net_config_t* config, plexus_net_context_t** context) {
  say = config->log;
  sink = config->log_sink;
  return inner().init(config, context);
}

int32_t properties(plexus_net_context_t* context, uint32_t device, plexus_net_properties_t* p) {
  const int32_t code = inner().properties(context, device, p);
  p->takes_pieces = 0;
  return code;
}

int32_t register_send(plexus_net_send_t* send,
                      const plexus_net_region_t* region,
                      plexus_net_memory_t** memory) {
  *memory =
      new plexus_net_memory{// NOLINT(*-owning-memory): deregister ends it
                            send, static_cast<const std::byte*>(region->data), region->size_bytes};
  const std::scoped_lock lock(mutex);
  live[*memory] = ++last_number;
  return PLEXUS_OK;
}

int32_t deregister(plexus_net_memory_t* memory) {
  {
    const std::scoped_lock lock(mutex);
    live.erase(memory);
  }
  delete memory;  // NOLINT(*-owning-memory)
  return PLEXUS_OK;
}

bool is_in_memory(plexus_net_send_t* send, const plexus_net_source_t& source) {
  const std::scoped_lock lock(mutex);
  const auto* const first = static_cast<const std::byte*>(source.data);
  return source.size_bytes == 0 ||
         (live.count(source.memory) != 0 && source.memory->send == send &&
          source.memory->begin <= first &&
          first + source.size_bytes <= source.memory->begin + source.memory->size_bytes);
}

int32_t isend_gathered(plexus_net_send_t* send,
                       uint32_t count,
                       const plexus_net_source_t* sources,
                       int32_t tag,
                       plexus_net_request_t** request) {
  std::array<plexus_net_piece_t, PLEXUS_NET_PIECES_MAX> pieces{};
  uint64_t bytes = 0;
  for (uint32_t i = 0; i < count; ++i) {
    if (!is_in_memory(send, sources[i])) {
      return refuse("gathering: a message is sent from memory that is not registered");
    }
    // Sent data is only read.
    pieces[i] = {const_cast<void*>(sources[i].data),  // NOLINT(*-pro-type-const-cast)
                 sources[i].size_bytes};
    bytes += sources[i].size_bytes;
  }
  const int32_t code = inner().isend_pieces(send, count, pieces.data(), tag, request);
  if (code == PLEXUS_OK) {
    gathered += bytes;
    const std::scoped_lock lock(mutex);
    Gathered& begun = under_way[*request];
    begun = {.memory = {}, .tests_left = 5};
    for (const plexus_net_source_t& source : std::span(sources, count)) {
      if (source.size_bytes > 0) {
        begun.memory.push_back(live.at(source.memory));
      }
    }
  }
  return code;
}

int32_t isend(plexus_net_send_t* send,
              const void* data,
              uint64_t size_bytes,
              int32_t tag,
              plexus_net_memory_t* memory,
              plexus_net_request_t** request) {
  return is_in_memory(send, {data, size_bytes, memory})
             ? inner().isend(send, data, size_bytes, tag, nullptr, request)
             : refuse("gathering: a message is sent from memory that is not registered");
}

bool is_registered(uint64_t number) {
  return std::any_of(live.begin(), live.end(),
                     [&](const auto& each) { return each.second == number; });
}

int32_t test(plexus_net_request_t* request, uint64_t* sizes_bytes) {
  const std::scoped_lock lock(mutex);
  const auto at = under_way.find(request);
  if (at != under_way.end() && at->second.tests_left-- > 0) {
    return PLEXUS_AGAIN;
  }
  const int32_t code = inner().test(request, sizes_bytes);
  if (code == PLEXUS_AGAIN || at == under_way.end()) {
    return code;
  }
  const Gathered ended = std::move(at->second);
  under_way.erase(at);
  const bool was_registered = std::all_of(ended.memory.begin(), ended.memory.end(), is_registered);
  return was_registered ? code
                        : refuse("gathering: memory was deregistered before its message was sent");
}

/// Registrations of a connection go before it.
void close_send(plexus_net_send_t* send) {
  {
    const std::scoped_lock lock(mutex);
    for (const auto& each : live) {
      if (each.first->send == send) {
        std::abort();
      }
    }
  }
  inner().close_send(send);
}

plexus_net_ops_t make_ops() {
  plexus_net_ops_t ops = inner();
  ops.init = init;
  ops.properties = properties;
  ops.register_send = register_send;
  ops.deregister = deregister;
  ops.isend = isend;
  ops.test = test;
  ops.close_send = close_send;
  ops.isend_pieces = nullptr;
  ops.irecv_pieces = nullptr;
  ops.isend_gathered = isend_gathered;
  return ops;
}

}  // namespace

uint64_t gathered_bytes() { return gathered; }
uint64_t live_registrations() {
  const std::scoped_lock lock(mutex);
  return live.size();
}

const plexus_plugin_t* plexus_plugin_query(uint32_t /*host_abi*/) {
  static const plexus_net_ops_t kOps = make_ops();
  static const plexus_plugin_t kPlugin = [] {
    plexus_plugin_t plugin = wrapped();
    plugin.name = "gathering";
    plugin.net = &kOps;
    return plugin;
  }();
  return &kPlugin;
}
