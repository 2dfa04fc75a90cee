// SPDX-License-Identifier: Apache-2.0
// net-socket with one fault that PLEXUS_MUTANT names, written without looking at what the kit
// checks, so that the kit's share of finds means something: planted_test.py runs the whole kit on
// each. mutant.cpp has the faults that were written for a check.
#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <deque>
#include <fcntl.h>
#include <map>
#include <mutex>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

#include "plugin-api/plexus_net.h"

#include "tests/conformance/mutant.hpp"
#include "tests/support/load_descriptor.hpp"

namespace {

const plexus_plugin_t& wrapped() {
  static const auto& kWrapped = plexus::test::load_descriptor<plexus_plugin_t>(
      std::getenv("PLEXUS_MUTANT_OF"), "plexus_plugin_query");
  return kWrapped;
}
const plexus_net_ops_t& inner() { return *wrapped().net; }

/// All state of the wrapper, which several threads use.
struct State {
  std::mutex mutex;
  plexus_log_fn log = nullptr;
  plexus_log_sink_t* sink = nullptr;
  uint64_t inits = 0;
  uint64_t sends = 0;
  uint64_t receives = 0;
  uint64_t properties = 0;
  std::map<const void*, uint64_t> of_connection;  // messages
  std::map<const void*, uint64_t> in_flight;      // requests
  std::map<plexus_net_request_t*, const void*> owner;
  std::map<plexus_net_request_t*, std::thread::id> poster;
  std::map<plexus_net_request_t*, uint64_t> room;  // of a receive
  std::deque<std::vector<char>> kept;              // what is sent instead of the caller's data
  std::vector<char> previous;
  std::deque<std::vector<char>> leaked;
};
State state;

int32_t refuse(const char* sentence) {
  state.log(state.sink, PLEXUS_LOG_ERROR, __FILE__, __LINE__, sentence);
  return PLEXUS_INTERNAL_ERROR;
}

int32_t init(const plexus_net_config_t* config, plexus_net_context_t** context) {
  const std::scoped_lock lock(state.mutex);
  state.log = config->log;
  state.sink = config->log_sink;
  if (is_mutant("one_context") && ++state.inits > 1) {
    return refuse("seeded: one context only");
  }
  return inner().init(config, context);
}

void finalize(plexus_net_context_t* context) {
  inner().finalize(context);
  if (is_mutant("finalize_leaks")) {
    const std::scoped_lock lock(state.mutex);
    state.leaked.emplace_back(5000);
  }
}

int32_t properties(plexus_net_context_t* context, uint32_t device, plexus_net_properties_t* p) {
  const int32_t code = inner().properties(context, device, p);
  const std::scoped_lock lock(state.mutex);
  ++state.properties;
  if (is_mutant("speed_wanders")) {
    p->speed_mbit_per_s += static_cast<uint32_t>(state.properties);
  }
  if (is_mutant("name_empty")) {
    std::memset(p->name, 0, sizeof p->name);
  }
  if (is_mutant("limit_zero")) {
    p->message_bytes_max = 0;
  }
  return code;
}

int32_t start_listen(plexus_net_context_t* context,
                     uint32_t device,
                     plexus_net_handle_t* handle,
                     plexus_net_listen_t** listen) {
  const int32_t code = inner().listen(context, device, handle, listen);
  if (is_mutant("handle_half")) {
    auto* const bytes = reinterpret_cast<char*>(handle);
    std::fill(bytes + 16, bytes + sizeof *handle, '\0');
  }
  return code;
}

int32_t connect(plexus_net_context_t* context,
                uint32_t device,
                const plexus_net_handle_t* handle,
                plexus_net_send_t** send) {
  const int32_t code = inner().connect(context, device, handle, send);
  const std::scoped_lock lock(state.mutex);
  if (is_mutant("connections_16") && code == PLEXUS_OK && ++state.of_connection[nullptr] > 16) {
    inner().close_send(std::exchange(*send, nullptr));
    return refuse("seeded: 16 connections at most");
  }
  return code;
}

int32_t accept(plexus_net_listen_t* listen, plexus_net_recv_t** recv) {
  const int32_t code = inner().accept(listen, recv);
  if (is_mutant("accept_leaks") && code == PLEXUS_OK && dup(STDERR_FILENO) < 0) {
    return PLEXUS_SYSTEM_ERROR;
  }
  return code;
}

int32_t register_recv(plexus_net_recv_t* recv,
                      const plexus_net_region_t* region,
                      plexus_net_memory_t** memory) {
  if (is_mutant("register_leaks")) {
    const std::scoped_lock lock(state.mutex);
    state.leaked.emplace_back(256);
  }
  if (is_mutant("register_clears") && region->kind == PLEXUS_MEMORY_HOST) {
    std::memset(region->data, 0, region->size_bytes);
  }
  return inner().register_recv(recv, region, memory);
}

/// The caller's data with a change, kept for as long as a request may need it.
char* change(const void* data, uint64_t size_bytes) {
  const auto* const bytes = static_cast<const char*>(data);
  state.kept.emplace_back(bytes, bytes + size_bytes);
  constexpr size_t kKeptMost = 64;
  if (state.kept.size() > kKeptMost) {
    state.kept.pop_front();
  }
  return state.kept.back().data();
}

/// What is sent instead of `data`. The mutex is held.
const void* spoil(const void* data, uint64_t size_bytes) {
  constexpr uint64_t kPage = 4096;
  const uint64_t number = state.sends;
  if (is_mutant("last_byte") && size_bytes > 2 * kPage) {
    char* const changed = change(data, size_bytes);
    changed[size_bytes - 1] ^= 1;
    return changed;
  }
  if (is_mutant("byte_of_page") && size_bytes > kPage) {
    char* const changed = change(data, size_bytes);
    changed[kPage] ^= 1;
    return changed;
  }
  if (is_mutant("powers") && size_bytes >= 64 && (size_bytes & (size_bytes - 1)) == 0) {
    char* const changed = change(data, size_bytes);
    changed[size_bytes / 2] ^= 4;
    return changed;
  }
  if (is_mutant("seldom") && number % 997 == 0 && size_bytes > 0) {
    char* const changed = change(data, size_bytes);
    changed[0] ^= 1;
    return changed;
  }
  if (is_mutant("odd_tail") && size_bytes % 2 == 1) {
    char* const changed = change(data, size_bytes);
    changed[size_bytes - 1] = 0;
    return changed;
  }
  if (is_mutant("stale") && size_bytes > 0) {
    const auto* const bytes = static_cast<const char*>(data);
    std::vector<char> sent(bytes, bytes + size_bytes);
    std::swap(sent, state.previous);
    return number % 7 == 0 && sent.size() == size_bytes ? change(sent.data(), size_bytes) : data;
  }
  if (is_mutant("shared_buffer") && size_bytes > 0 && size_bytes < 65536) {
    static std::array<char, 65536> buffer{};
    std::memcpy(buffer.data(), data, size_bytes);
    return buffer.data();
  }
  return data;
}

int32_t change_tag(int32_t tag) {
  if (is_mutant("tag_8bit")) {
    return tag & 0xff;
  }
  if (is_mutant("tag_16bit")) {
    return tag & 0xffff;
  }
  return is_mutant("tag_unsigned") ? tag & 0x7fffffff : tag;
}

/// Why it sends nothing; null: it does. The mutex is held.
const char* find_refusal(const void* connection, uint64_t size_bytes) {
  if (is_mutant("four_in_flight") && state.in_flight[connection] >= 4) {
    return "seeded: four requests at most";
  }
  if (is_mutant("one_mebibyte") && size_bytes > (uint64_t{1} << 20)) {
    return "seeded: one mebibyte at most";
  }
  if (is_mutant("no_empty") && size_bytes == 0) {
    return "seeded: nothing to send";
  }
  return nullptr;
}

void remember(plexus_net_request_t* request, const void* connection) {
  state.owner[request] = connection;
  state.poster[request] = std::this_thread::get_id();
  ++state.in_flight[connection];
}

int32_t isend(plexus_net_send_t* send,
              const void* data,
              uint64_t size_bytes,
              int32_t tag,
              plexus_net_memory_t* memory,
              plexus_net_request_t** request) {
  const std::scoped_lock lock(state.mutex);
  ++state.sends;
  const uint64_t number = ++state.of_connection[send];
  if (const char* const why = find_refusal(send, size_bytes); why != nullptr) {
    return refuse(why);
  }
  if (is_mutant("length_16bit") && size_bytes > 65535) {
    size_bytes &= 65535;
  }
  if (is_mutant("length_24bit") && size_bytes >= (uint64_t{1} << 24)) {
    size_bytes &= (uint64_t{1} << 24) - 1;
  }
  if (is_mutant("send_leaks")) {
    state.leaked.emplace_back(64);
  }
  if (is_mutant("wraps") && number > 512) {
    return PLEXUS_AGAIN;  // its counter of messages has nine bits
  }
  const void* const sent = spoil(data, size_bytes);
  if (is_mutant("twice") && number % 40 == 0) {
    plexus_net_request_t* first = nullptr;
    inner().isend(send, sent, size_bytes, tag, memory, &first);
  }
  const int32_t code = inner().isend(send, sent, size_bytes, change_tag(tag), memory, request);
  if (code == PLEXUS_OK) {
    remember(*request, send);
  }
  return code;
}

int32_t irecv(plexus_net_recv_t* recv,
              uint32_t buffers_count,
              const plexus_net_buffer_t* buffers,
              plexus_net_request_t** request) {
  std::array<plexus_net_buffer_t, PLEXUS_NET_RECVS_MAX> changed{};
  std::copy_n(buffers, buffers_count, changed.begin());
  for (plexus_net_buffer_t& buffer : changed) {
    buffer.tag = change_tag(buffer.tag);
  }
  const std::scoped_lock lock(state.mutex);
  ++state.receives;
  if (is_mutant("receives_seven") && state.in_flight[recv] >= 7) {
    return refuse("seeded: seven receives at most");
  }
  if (is_mutant("group_tags") && buffers_count > 1) {
    std::swap(changed[0].tag, changed[1].tag);
  }
  if (is_mutant("group_first") && buffers_count > 2) {
    changed[2].size_bytes /= 2;
  }
  const int32_t code = inner().irecv(recv, buffers_count, changed.data(), request);
  if (code == PLEXUS_OK) {
    remember(*request, recv);
    state.room[*request] = buffers_count == 1 ? buffers[0].size_bytes : 0;
  }
  return code;
}

/// What test() reports instead. The mutex is held.
void miscount(plexus_net_request_t* request, uint64_t* sizes_bytes) {
  const auto room = state.room.find(request);
  if (sizes_bytes == nullptr || room == state.room.end()) {
    return;
  }
  if (is_mutant("size_of_room") && room->second > 0) {
    *sizes_bytes = room->second;
  }
  if (is_mutant("size_less") && *sizes_bytes > 1000) {
    --*sizes_bytes;
  }
  if (is_mutant("size_32bit_late") && state.receives > 300) {
    *sizes_bytes = 4;
  }
}

int32_t test(plexus_net_request_t* request, uint64_t* sizes_bytes) {
  {
    const std::scoped_lock lock(state.mutex);
    if (is_mutant("own_thread") && state.poster[request] != std::this_thread::get_id()) {
      return PLEXUS_AGAIN;
    }
  }
  if (is_mutant("test_null") && sizes_bytes == nullptr) {
    *static_cast<volatile uint64_t*>(sizes_bytes) = 0;  // the fault
  }
  if (is_mutant("test_naps")) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  const int32_t code = inner().test(request, sizes_bytes);
  const std::scoped_lock lock(state.mutex);
  if (code != PLEXUS_AGAIN) {
    --state.in_flight[state.owner[request]];
    miscount(request, sizes_bytes);
    state.owner.erase(request);
    state.poster.erase(request);
    state.room.erase(request);
  }
  if (is_mutant("hides_failure") && code != PLEXUS_OK && code != PLEXUS_AGAIN) {
    return PLEXUS_OK;
  }
  return code;
}

void close_recv(plexus_net_recv_t* recv) {
  inner().close_recv(recv);
  if (is_mutant("close_thread")) {
    std::thread([] { std::this_thread::sleep_for(std::chrono::hours(1)); }).detach();
  }
  if (is_mutant("close_twice")) {
    inner().close_recv(recv);
  }
}

void close_listen(plexus_net_listen_t* listen) {
  if (is_mutant("listen_lasts") && open("/dev/null", O_RDONLY | O_CLOEXEC) < 0) {
    return;
  }
  inner().close_listen(listen);
}

plexus_net_ops_t make_ops() {
  plexus_net_ops_t ops = inner();
  ops.init = init;
  ops.finalize = finalize;
  ops.properties = properties;
  ops.listen = start_listen;
  ops.connect = connect;
  ops.accept = accept;
  ops.register_recv = register_recv;
  ops.isend = isend;
  ops.irecv = irecv;
  ops.test = test;
  ops.close_recv = close_recv;
  ops.close_listen = close_listen;
  return ops;
}

plexus_plugin_t make_plugin() {
  static const plexus_net_ops_t kOps = make_ops();
  plexus_plugin_t plugin = wrapped();
  plugin.name = "seeded";
  plugin.net = &kOps;
  return plugin;
}

}  // namespace

const plexus_plugin_t* plexus_plugin_query(uint32_t /*host_abi*/) {
  static const plexus_plugin_t kPlugin = make_plugin();
  return &kPlugin;
}
