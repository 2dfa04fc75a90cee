// SPDX-License-Identifier: Apache-2.0
// A net plugin of a NIC that accesses GPU memory: net-socket with the software device's memory for
// the GPU's. It is as restrictive as a NIC may be: data received into GPU memory is elsewhere until
// a flush, and pointers of the wrong kind are refused.
//
// PLEXUS_TEST_GPU_KINDS: "cuda", "dmabuf" (GPU memory by dma-buf only), "both" (the default);
// PLEXUS_TEST_GPU_REFUSES=1: registering GPU memory fails; PLEXUS_TEST_GPU_FORCE_FLUSH=1: as the
// property of that name. At its end it says in an INFO line what it was asked for.
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <sys/mman.h>
#include <utility>
#include <vector>

#include "plugin-api/plexus_net.h"

#include "tests/support/load_descriptor.hpp"

/// Whether memory belongs to a GPU. Exported by the test program.
extern "C" int plexus_test_is_gpu_memory(const void* pointer);

struct plexus_net_memory {
  bool is_of_gpu = false;
  std::byte* data = nullptr;    // as the host names it
  std::byte* mapped = nullptr;  // address of the dma-buf's mapping; else `data`
  uint64_t size_bytes = 0;
  void* mapping = nullptr;
  uint64_t mapping_bytes = 0;
};

struct plexus_net_request {
  plexus_net_request_t* inner = nullptr;  // null: a flush
  std::byte* target = nullptr;            // destination in GPU memory, not yet visible there
  std::shared_ptr<std::vector<std::byte>> card;
  int tests = 0;
};

namespace {

const plexus_plugin_t& wrapped() {
  static const auto& kWrapped = plexus::test::load_descriptor<plexus_plugin_t>(
      (std::string(std::getenv("PLEXUS_TEST_LIB_DIR")) + "/libplexus-net-socket.so").c_str(),
      "plexus_plugin_query");
  return kWrapped;
}
const plexus_net_ops_t& inner() { return *wrapped().net; }

bool is_set(const char* name, const char* value) {
  const char* const set = std::getenv(name);
  return set != nullptr && std::strcmp(set, value) == 0;
}

struct Counts {
  std::atomic<int> by_address{0};
  std::atomic<int> by_dmabuf{0};
  std::atomic<int> sends{0};
  std::atomic<int> flushes{0};
};
Counts counts;
std::mutex mutex;
/// Data that the NIC holds back, by its destination. Never destroyed, like the variables below: a
/// process may exit while its engine thread still tests.
auto& held = *new std::map<const std::byte*, std::shared_ptr<std::vector<std::byte>>>;
/// Requests that are not done; they end with their connection.
struct Begun {
  const void* connection;
  std::unique_ptr<plexus_net_request> request;
};
auto& begun = *new std::map<plexus_net_request_t*, Begun>;  // guarded by mutex
plexus_log_fn say = nullptr;
plexus_log_sink_t* sink = nullptr;

int32_t refuse(const char* why) {
  say(sink, PLEXUS_LOG_ERROR, __FILE__, __LINE__, why);
  return PLEXUS_INVALID_ARGUMENT;
}

plexus_net_request_t* keep(const void* connection, std::unique_ptr<plexus_net_request> made) {
  plexus_net_request_t* const request = made.get();
  const std::scoped_lock lock(mutex);
  begun.emplace(request, Begun{connection, std::move(made)});
  return request;
}

std::unique_ptr<plexus_net_request> take(plexus_net_request_t* request) {
  const std::scoped_lock lock(mutex);
  return std::move(begun.extract(request).mapped().request);
}

/// The requests of a connection that ends; what they point to must outlive the connection.
std::vector<Begun> take_all(const void* connection) {
  std::vector<Begun> taken;
  const std::scoped_lock lock(mutex);
  for (auto at = begun.begin(); at != begun.end();) {
    const auto next = std::next(at);
    if (at->second.connection == connection) {
      taken.push_back(std::move(begun.extract(at).mapped()));
    }
    at = next;
  }
  return taken;
}

void close_send(plexus_net_send_t* send) {
  const auto unfinished = take_all(send);
  inner().close_send(send);
}
void close_recv(plexus_net_recv_t* recv) {
  const auto unfinished = take_all(recv);
  inner().close_recv(recv);
}

int32_t init(const plexus_net_config_t* config, plexus_net_context_t** context) {
  say = config->log;
  sink = config->log_sink;
  return inner().init(config, context);
}

void finalize(plexus_net_context_t* context) {
  const std::string line = "net-gpu: " + std::to_string(counts.by_address) + " by address, " +
                           std::to_string(counts.by_dmabuf) + " by dma-buf, sends " +
                           (counts.sends > 0 ? "yes" : "no") + ", flushes " +
                           (counts.flushes > 0 ? "yes" : "no");
  say(sink, PLEXUS_LOG_INFO, __FILE__, __LINE__, line.c_str());
  inner().finalize(context);
}

int32_t properties(plexus_net_context_t* context, uint32_t device, plexus_net_properties_t* p) {
  const int32_t code = inner().properties(context, device, p);
  if (!is_set("PLEXUS_TEST_GPU_KINDS", "dmabuf")) {
    p->pointer_support |= PLEXUS_MEMORY_CUDA;
  }
  if (!is_set("PLEXUS_TEST_GPU_KINDS", "cuda")) {
    p->pointer_support |= PLEXUS_MEMORY_DMABUF;
  }
  p->takes_pieces = 0;  // messages must be in registered memory
  p->force_flush = is_set("PLEXUS_TEST_GPU_FORCE_FLUSH", "1") ? 1 : 0;
  return code;
}

/// The memory behind a dma-buf, by a mapping of the card's own.
int32_t map_dmabuf(const plexus_net_region_t& region, plexus_net_memory& memory) {
  memory.mapping_bytes = region.dmabuf_offset_bytes + region.size_bytes;
  memory.mapping =
      mmap(nullptr, memory.mapping_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, region.dmabuf_fd, 0);
  if (memory.mapping == MAP_FAILED) {
    return refuse("net-gpu: the dma-buf cannot be mapped");
  }
  memory.mapped = static_cast<std::byte*>(memory.mapping) + region.dmabuf_offset_bytes;
  ++counts.by_dmabuf;
  return PLEXUS_OK;
}

int32_t add_memory(const plexus_net_region_t& region, plexus_net_memory_t** memory) {
  const bool is_of_gpu = region.kind != PLEXUS_MEMORY_HOST;
  if (is_of_gpu != (plexus_test_is_gpu_memory(region.data) != 0)) {
    return refuse("net-gpu: memory is registered as what it is not");
  }
  if (is_of_gpu && is_set("PLEXUS_TEST_GPU_REFUSES", "1")) {
    return refuse("net-gpu: no GPU memory today");
  }
  auto made = std::make_unique<plexus_net_memory>();
  made->is_of_gpu = is_of_gpu;
  made->data = static_cast<std::byte*>(region.data);
  made->mapped = made->data;
  made->size_bytes = region.size_bytes;
  if (region.kind == PLEXUS_MEMORY_DMABUF) {
    if (const int32_t code = map_dmabuf(region, *made); code != PLEXUS_OK) {
      return code;
    }
  } else if (is_of_gpu) {
    ++counts.by_address;
  }
  *memory = made.release();
  return PLEXUS_OK;
}

int32_t register_send(plexus_net_send_t* /*send*/,
                      const plexus_net_region_t* region,
                      plexus_net_memory_t** memory) {
  return add_memory(*region, memory);
}
int32_t register_recv(plexus_net_recv_t* /*recv*/,
                      const plexus_net_region_t* region,
                      plexus_net_memory_t** memory) {
  return add_memory(*region, memory);
}
int32_t deregister(plexus_net_memory_t* memory) {
  const std::unique_ptr<plexus_net_memory> owner(memory);
  if (memory->mapping != nullptr) {
    munmap(memory->mapping, memory->mapping_bytes);
  }
  return PLEXUS_OK;
}

/// The NIC's address of `data`; null: not in `memory`, or of the wrong kind.
std::byte* seen_by_card(const void* data, uint64_t size_bytes, const plexus_net_memory* memory) {
  const auto* const begin = static_cast<const std::byte*>(data);
  const bool is_inside = memory != nullptr && begin >= memory->data &&
                         begin + size_bytes <= memory->data + memory->size_bytes;
  return is_inside ? memory->mapped + (begin - memory->data) : nullptr;
}

/// True every third time: the first part of a message is then sent, and its second part is not.
bool is_busy() {
  static std::atomic<unsigned> calls{0};
  constexpr unsigned kTurns = 3;
  return ++calls % kTurns == 0;
}

int32_t isend(plexus_net_send_t* send,
              const void* data,
              uint64_t size_bytes,
              int32_t tag,
              plexus_net_memory_t* memory,
              plexus_net_request_t** request) {
  const std::byte* const seen = seen_by_card(data, size_bytes, memory);
  if (is_busy()) {
    return PLEXUS_AGAIN;
  }
  if (seen == nullptr) {
    return refuse("net-gpu: a message is not in its registered memory");
  }
  plexus_net_request_t* under = nullptr;
  const int32_t code = inner().isend(send, seen, size_bytes, tag, nullptr, &under);
  if (code == PLEXUS_OK) {
    counts.sends += memory->is_of_gpu ? 1 : 0;
    *request = keep(
        send, std::make_unique<plexus_net_request>(plexus_net_request{under, nullptr, nullptr, 0}));
  }
  return code;
}

int32_t irecv(plexus_net_recv_t* recv,
              uint32_t count,
              const plexus_net_buffer_t* buffers,
              plexus_net_request_t** request) {
  plexus_net_buffer_t buffer = buffers[0];
  std::byte* const seen = seen_by_card(buffer.data, buffer.size_bytes, buffer.memory);
  if (is_busy()) {
    return PLEXUS_AGAIN;
  }
  if (count != 1 || seen == nullptr) {
    return refuse("net-gpu: a receive is not one buffer in its registered memory");
  }
  auto made = std::make_unique<plexus_net_request>();
  if (buffer.memory->is_of_gpu) {
    made->target = seen;
    made->card = std::make_shared<std::vector<std::byte>>(buffer.size_bytes);
    buffer.data = made->card->data();
  }
  buffer.memory = nullptr;
  const int32_t code = inner().irecv(recv, 1, &buffer, &made->inner);
  if (code == PLEXUS_OK) {
    *request = keep(recv, std::move(made));
  }
  return code;
}

int32_t flush(plexus_net_recv_t* recv,
              uint32_t count,
              const plexus_net_buffer_t* buffers,
              plexus_net_request_t** request) {
  if (count != 1 || !buffers[0].memory->is_of_gpu || buffers[0].size_bytes == 0) {
    return refuse("net-gpu: a flush of nothing that was received into GPU memory");
  }
  ++counts.flushes;
  auto made = std::make_unique<plexus_net_request>();
  made->target = seen_by_card(buffers[0].data, buffers[0].size_bytes, buffers[0].memory);
  *request = keep(recv, std::move(made));
  return PLEXUS_OK;
}

/// Becomes visible when the flush is done, not when it begins.
int32_t test_flush(plexus_net_request_t* request) {
  constexpr int kTests = 3;
  if (++request->tests < kTests) {
    return PLEXUS_AGAIN;
  }
  const auto owner = take(request);
  const std::scoped_lock lock(mutex);
  const auto at = held.find(request->target);
  if (at == held.end()) {
    return refuse("net-gpu: a flush of what did not arrive");
  }
  std::memcpy(request->target, at->second->data(), at->second->size());
  held.erase(at);
  return PLEXUS_OK;
}

int32_t test(plexus_net_request_t* request, uint64_t* sizes_bytes) {
  if (request->inner == nullptr) {
    return test_flush(request);
  }
  uint64_t size_bytes = 0;
  const int32_t code = inner().test(request->inner, &size_bytes);
  if (code == PLEXUS_AGAIN) {
    return code;
  }
  const auto owner = take(request);
  if (sizes_bytes != nullptr) {
    *sizes_bytes = size_bytes;
  }
  if (code == PLEXUS_OK && request->card != nullptr && size_bytes > 0) {
    request->card->resize(size_bytes);
    const std::scoped_lock lock(mutex);
    held[request->target] = request->card;
  }
  return code;
}

plexus_net_ops_t make_ops() {
  plexus_net_ops_t ops = inner();
  ops.init = init;
  ops.finalize = finalize;
  ops.properties = properties;
  ops.register_send = register_send;
  ops.register_recv = register_recv;
  ops.deregister = deregister;
  ops.isend = isend;
  ops.irecv = irecv;
  ops.flush = flush;
  ops.test = test;
  ops.close_send = close_send;
  ops.close_recv = close_recv;
  ops.isend_pieces = nullptr;
  ops.irecv_pieces = nullptr;
  ops.isend_gathered = nullptr;
  return ops;
}

plexus_plugin_t make_plugin() {
  static const plexus_net_ops_t kOps = make_ops();
  plexus_plugin_t plugin = wrapped();
  plugin.name = "GPU";
  plugin.net = &kOps;
  return plugin;
}

}  // namespace

const plexus_plugin_t* plexus_plugin_query(uint32_t /*host_abi*/) {
  static const plexus_plugin_t kPlugin = make_plugin();
  return &kPlugin;
}
