// SPDX-License-Identifier: Apache-2.0
// Intentionally wrong: a profiler of NCCL's ABI (PROFILER_VERSION 4 to 7) with the fault that
// PLEXUS_MUTANT names. mutants_test.py says which check must detect which mutant. Without
// PLEXUS_MUTANT it is correct: it counts events.
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "plugin-api/nccl/profiler.h"
#include "plugin-api/plexus_plugin.h"

#include "tests/conformance/mutant.hpp"

namespace {

#if PROFILER_VERSION == 4
using What = nccl_profile_event_v4_t;
#elif PROFILER_VERSION < 7
using What = nccl_profile_event_v5_t;
#else
using What = nccl_profile_event_v7_t;
#endif

struct Context {
  size_t name_size;
  std::atomic<int> open{0};
};

constexpr uint32_t kAlive = 0xA11FE;

struct Event {
  uint32_t magic = kAlive;
  Context* context;
  const What* what;  // borrowed: only a mutant reads it later
  uint64_t type;
  Event* parent;
  std::thread::id thread;
};

constexpr int kMask =
    NCCL_PROFILE_COLL | NCCL_PROFILE_P2P | NCCL_PROFILE_PROXY_OP | NCCL_PROFILE_PROXY_STEP;

std::mutex mutex;
std::vector<Event*> stack;  // for a mutant that assumes nested events
std::atomic<int> contexts{0};
std::atomic<int*> process_mask{nullptr};

int32_t begin(void** context, int* mask, const char* name) {
  if (is_mutant("init_fails")) {
    return PLEXUS_SYSTEM_ERROR;
  }
  if (is_mutant("init_without_context")) {  // correct: it does not profile here, and says so
    *context = nullptr;
    *mask = 0;
    return PLEXUS_OK;
  }
  if (is_mutant("init_once") && contexts++ > 0) {
    return PLEXUS_INVALID_USAGE;
  }
  if (is_mutant("init_leaks_descriptor") && open("/dev/null", O_RDONLY | O_CLOEXEC) < 0) {
    return PLEXUS_SYSTEM_ERROR;
  }
  if (is_mutant("init_environment")) {
    setenv("PLEXUS_MUTANT_WAS_HERE", "1", 1);
  }
  const bool is_careless = is_mutant("init_name");  // the name may be null
  *context = new Context{name == nullptr && !is_careless ? 0 : std::strlen(name)};
  if (process_mask == nullptr) {  // as NVIDIA's example: once, and by its address from then on
    process_mask = mask;
    *mask |= kMask;
  } else if (is_mutant("mask_by_communicator")) {
    *mask = 0;
  }
  return PLEXUS_OK;
}

#if PROFILER_VERSION == 4
int32_t init(void** context, int* mask, const char* name, uint64_t, int, int, int, nccl_log_fn) {
  return begin(context, mask, name);
}
#else
int32_t init(void** context, uint64_t, int* mask, const char* name, int, int, int, nccl_log_fn) {
  return begin(context, mask, name);
}
#endif

int32_t start(void* raw, void** handle, What* what) {
  auto* const context = static_cast<Context*>(raw);
  if (context == nullptr) {
    *handle = nullptr;
    return PLEXUS_OK;
  }
  if (is_mutant("start_throws")) {
    throw std::runtime_error("thrown by a mutant");
  }
  if (is_mutant("start_picky") && (what->type & kMask) == 0) {
    return PLEXUS_INVALID_ARGUMENT;
  }
  if (is_mutant("start_sleeps")) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  if (is_mutant("start_prints")) {
    std::puts("mutant: hello");
    std::fflush(stdout);
  }
  // Correct: only reads data of networks with a known id.
  if (what->type == NCCL_PROFILE_NET_PLUGIN && is_mutant("start_reads_sockets") &&
      (what->is.net_plugin.id == 0x10001 || what->is.net_plugin.id == 0x20001) &&
      *static_cast<const volatile uint8_t*>(what->is.net_plugin.data) == 0xFF) {
    return PLEXUS_INVALID_ARGUMENT;
  }
  constexpr int kPool = 8;  // correct: what does not fit into its pool is not tracked
  if (context->open >= kPool && is_mutant("start_pooled")) {
    *handle = nullptr;
    return PLEXUS_OK;
  }
  constexpr int kFull = 1000;
  if (context->open >= kFull && is_mutant("start_full")) {
    return PLEXUS_SYSTEM_ERROR;
  }
  auto* const parent = static_cast<Event*>(what->parent);
  if (is_mutant("start_parent") && parent != nullptr && parent->magic != kAlive) {
    std::abort();
  }
  auto* const event =
      new Event{kAlive, context, what, what->type, parent, std::this_thread::get_id()};
  ++context->open;
  if (is_mutant("stop_nested")) {
    const std::lock_guard lock(mutex);
    stack.push_back(event);
  }
  *handle = event;
  return PLEXUS_OK;
}

int32_t record(void* handle, int state, nccl_profile_state_t*) {
  const auto* const event = static_cast<Event*>(handle);
  const bool is_later = event->type == NCCL_PROFILE_PROXY_CTRL;
  if (is_mutant("record_picky") && is_later) {
    return PLEXUS_INVALID_ARGUMENT;
  }
  return is_mutant("record_fails") && state == NCCL_PROFILE_SEND_WAIT ? PLEXUS_INTERNAL_ERROR
                                                                      : PLEXUS_OK;
}

int32_t stop(void* handle) {
  auto* const event = static_cast<Event*>(handle);
  if (is_mutant("stop_what") && event->what->type != event->type) {
    return PLEXUS_INTERNAL_ERROR;
  }
  if (is_mutant("stop_own_thread") && event->thread != std::this_thread::get_id()) {
    return PLEXUS_INTERNAL_ERROR;
  }
  if (is_mutant("stop_nested")) {
    const std::lock_guard lock(mutex);
    if (stack.back() != event) {
      return PLEXUS_INTERNAL_ERROR;
    }
    stack.pop_back();
  }
  if (is_mutant("stop_children") && event->parent != nullptr && event->parent->magic != kAlive) {
    return PLEXUS_INTERNAL_ERROR;  // assumes that parents end last
  }
  --event->context->open;
  // A mutant that reads parents keeps ended events, marked as such.
  const bool is_kept = is_mutant("start_parent") || is_mutant("stop_children");
  if (is_mutant("stop_leaks") || is_kept) {
    event->magic = 0;
  } else {
    delete event;
  }
  return PLEXUS_OK;
}

int32_t finalize(void* raw) {
  auto* const context = static_cast<Context*>(raw);
  while (is_mutant("finalize_waits") && context->open > 0) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  const bool has_open = context->open > 0;
  delete context;
  *process_mask = is_mutant("mask_cleared") ? 0 : kMask;
  return is_mutant("finalize_counts") && has_open ? PLEXUS_INTERNAL_ERROR
         : is_mutant("finalize_fails")            ? PLEXUS_INTERNAL_ERROR
                                                  : PLEXUS_OK;
}

}  // namespace

#define TABLE_OF(version) nccl_profiler_v##version##_t
#define TABLE(version) TABLE_OF(version)
#define SYMBOL_OF(version) ncclProfiler_v##version
#define SYMBOL(version) SYMBOL_OF(version)

extern "C" {
__attribute__((visibility("default"))) TABLE(PROFILER_VERSION)
    SYMBOL(PROFILER_VERSION) = {"Mutant", init, start, stop, record, finalize};
}
