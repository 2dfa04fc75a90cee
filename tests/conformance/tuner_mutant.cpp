// SPDX-License-Identifier: Apache-2.0
// Intentionally wrong: a tuner of NCCL's ABI (TUNER_VERSION 2 to 6) with the fault that
// PLEXUS_MUTANT names. mutants_test.py says which check must detect which mutant. Without
// PLEXUS_MUTANT it is correct.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <limits>
#include <stdexcept>
#include <string>
#include <thread>

#include "plugin-api/nccl/tuner.h"
#include "plugin-api/plexus_plugin.h"

#include "tests/conformance/mutant.hpp"

namespace {

struct Context {
  size_t nranks;
  double ring_us;                    // the model's time
  nccl_tuner_constants_v5_t* model;  // only a mutant keeps it
};

std::atomic<size_t> last_nranks{0};
std::atomic<int> calls{0};

int32_t begin(size_t nranks, void** context, nccl_tuner_constants_v5_t* model) {
  last_nranks = nranks;
  if (is_mutant("init_refuses_large") && nranks > 1000) {
    return PLEXUS_INVALID_ARGUMENT;
  }
  if (is_mutant("init_leaks_descriptor") && open("/dev/null", O_RDONLY | O_CLOEXEC) < 0) {
    return PLEXUS_SYSTEM_ERROR;
  }
  if (is_mutant("init_leaks_memory")) {
    std::free(std::calloc(1, 1));
    static std::atomic<void*> kept;
    void** const more = static_cast<void**>(std::calloc(100, sizeof(void*)));
    *more = kept.exchange(more);
  }
  if (is_mutant("init_leaks_thread")) {
    std::thread([] { std::this_thread::sleep_for(std::chrono::hours(1)); }).detach();
  }
  if (is_mutant("init_environment")) {
    setenv("PLEXUS_MUTANT_WAS_HERE", "1", 1);
  }
  if (model != nullptr && is_mutant("model_nan")) {
    model->channel_nvls_tree_bandwidth[3][2] = std::numeric_limits<double>::quiet_NaN();
  }
  const double ring_us =
      model == nullptr ? 6 : model->hardware_latency[2][NCCL_TUNER_RING][NCCL_TUNER_SIMPLE];
  *context = new Context{nranks, ring_us, model};
  return PLEXUS_OK;
}

double ring_us(const Context& context, size_t size) {
  const size_t nranks = is_mutant("context_shared") ? last_nranks.load() : context.nranks;
  const double model_us =
      context.model != nullptr && is_mutant("init_keeps_model")
          ? context.model->hardware_latency[2][NCCL_TUNER_RING][NCCL_TUNER_SIMPLE]
          : context.ring_us;
  const char* const host = is_mutant("costs_by_host") ? std::getenv("HOSTNAME") : nullptr;
  const bool is_elsewhere = host != nullptr && std::strcmp(host, "another-host") == 0;
  const double noise = is_mutant("costs_random") ? calls++ : 0;
  return model_us * static_cast<double>(2 * nranks) + static_cast<double>(size) * 1e-4 + noise +
         (is_elsewhere ? 1 : 0);
}

int32_t misbehave(int collective) {
  if (is_mutant("info_throws")) {
    throw std::runtime_error("thrown by a mutant");
  }
  if (is_mutant("info_prints")) {
    std::puts("mutant: hello");
    std::fflush(stdout);
  }
  if (is_mutant("info_sleeps")) {
    std::this_thread::sleep_for(std::chrono::milliseconds(3));
  }
  if (is_mutant("info_exits") && collective > NCCL_TUNER_ALL_REDUCE) {
    std::_Exit(3);
  }
  return is_mutant("info_fails") ? PLEXUS_INTERNAL_ERROR : PLEXUS_OK;
}

int choose_channels(size_t size) {
  const bool is_large = size >= (size_t{1} << 30);
  return is_mutant("channels_negative") && is_large ? -1
         : is_mutant("channels_many") && is_large   ? 1000
                                                    : 0;
}

#if TUNER_VERSION == 2
int32_t info(void* raw,
             int collective,
             size_t size,
             int,
             int,
             int,
             int* algorithm,
             int* protocol,
             int* channels) {
  const int32_t code = misbehave(collective);
  const bool is_small = ring_us(*static_cast<Context*>(raw), size) < 500;
  *algorithm = is_small ? NCCL_TUNER_TREE : NCCL_TUNER_RING;
  *protocol = NCCL_TUNER_SIMPLE;
  *channels = choose_channels(size);
  if (is_mutant("pair_half")) {
    *protocol = NCCL_TUNER_UNDEFINED;
  }
  if (is_mutant("pair_nvls")) {
    *algorithm = 4;
  }
  return code;
}
#else
int32_t answer(void* raw,
               int collective,
               size_t size,
               float* costs,
               int algorithms,
               int protocols,
               int* channels) {
  const int32_t code = misbehave(collective);
  const int stride = is_mutant("costs_stride") ? NCCL_TUNER_PROTOCOLS : protocols;
  float& ring = costs[NCCL_TUNER_RING * stride + NCCL_TUNER_SIMPLE];
  if (ring >= 0 || is_mutant("costs_forbidden") || is_mutant("costs_stride")) {
    ring = static_cast<float>(ring_us(*static_cast<Context*>(raw), size));
  }
  if (is_mutant("costs_nan")) {
    ring = std::numeric_limits<float>::quiet_NaN();
  }
  if (is_mutant("costs_negative") && size > (size_t{1} << 30)) {
    ring = -5;
  }
  if (is_mutant("costs_all_forbidden")) {
    std::fill(costs, costs + algorithms * protocols, NCCL_TUNER_NOT_POSSIBLE);
  }
  if (is_mutant("costs_beside")) {
    costs[algorithms * protocols] = 1;
  }
  *channels = choose_channels(size);
  return code;
}

int32_t info(void* context,
             int collective,
             size_t size,
             int,
             float** costs,
             int algorithms,
             int protocols,
#if TUNER_VERSION >= 4
             int,
#endif
             int* channels) {
  return answer(context, collective, size, reinterpret_cast<float*>(costs), algorithms, protocols,
                channels);
}
#endif

#if TUNER_VERSION >= 5
int32_t init(void** context,
             uint64_t,
             size_t nranks,
             size_t,
             nccl_log_fn,
             nccl_tuner_domains_v5_t*,
             nccl_tuner_constants_v5_t* model) {
  return begin(nranks, context, model);
}
#else
int32_t init(size_t nranks, size_t, nccl_log_fn, void** context) {
  return begin(nranks, context, nullptr);
}
#endif

int32_t finalize(void* context) {
  delete static_cast<Context*>(context);
  return is_mutant("finalize_fails") ? PLEXUS_INTERNAL_ERROR : PLEXUS_OK;
}

#if TUNER_VERSION >= 6
int32_t chunk(void*, int, size_t size, int, int, int, size_t* chunk_bytes) {
  *chunk_bytes = is_mutant("chunk_zero") ? size / 1024 : *chunk_bytes / 2;
  return PLEXUS_OK;
}
#endif

}  // namespace

#define TABLE_OF(version) nccl_tuner_v##version##_t
#define TABLE(version) TABLE_OF(version)
#define SYMBOL_OF(version) ncclTunerPlugin_v##version
#define SYMBOL(version) SYMBOL_OF(version)

extern "C" {
__attribute__((visibility("default"))) TABLE(TUNER_VERSION) SYMBOL(TUNER_VERSION) = {
    "Mutant", init, info, finalize,
#if TUNER_VERSION >= 6
    chunk,
#endif
};
}
