/* SPDX-License-Identifier: Apache-2.0
 *
 * A tuner plugin of NCCL's ABI, written from the published layout alone: it shares no header with
 * the library that loads it. Compiled once per version (TUNER_VERSION 2 to 6). What it answers says
 * the environment variable FIXTURE_TUNER, at every call; what it was told, `tuner_fixture`.
 */
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))
enum { kTree = 0, kRing = 1, kPat = 6, kAlgorithms = 7, kSimple = 2, kProtocols = 3 };
typedef void (*log_function)(int, unsigned long, const char*, int, const char*, ...);

struct tuner_fixture {
  int inits, finalizes, calls;
  size_t nranks, nnodes, bytes;
  int function, pipelined, registered;
  int domains, ranks_min, ranks_max;
  double net_latency;
  float costs[kAlgorithms * kProtocols];
  uint64_t comm_id;
};
extern EXPORT struct tuner_fixture tuner_fixture;
EXPORT struct tuner_fixture tuner_fixture;

static log_function say;
static int own_context;

static int is_asked_to(const char* word) {
  const char* mode = getenv("FIXTURE_TUNER");
  return mode != NULL && strcmp(mode, word) == 0;
}

static int begin(size_t nranks, size_t nnodes, log_function log, void** context) {
  say = log;
  tuner_fixture.inits++;
  tuner_fixture.nranks = nranks;
  tuner_fixture.nnodes = nnodes;
  *context = &own_context;
  if (is_asked_to("refuse")) {
    say(2, 0x40, __FILE__, __LINE__, "no table for %zu ranks", nranks);
    return 2;
  }
  return 0;
}

static int finalize(void* context) {
  tuner_fixture.finalizes += context == &own_context;
  return 0;
}

static int note(void* context, int function, size_t bytes, int pipelined, int* channels) {
  tuner_fixture.calls++;
  tuner_fixture.function = function;
  tuner_fixture.bytes = bytes;
  tuner_fixture.pipelined = pipelined;
  if (context != &own_context || *channels != 0) {
    return 3;
  }
  if (is_asked_to("fail")) {
    say(2, 0x40, __FILE__, __LINE__, "the table is gone");
    return 2;
  }
  if (is_asked_to("channels")) {
    *channels = 3;
  }
  if (is_asked_to("huge-channels")) {
    *channels = 1 << 30;
  }
  if (is_asked_to("negative-channels")) {
    *channels = -4;
  }
  return 0;
}

#if TUNER_VERSION == 2
static int info(void* context,
                int function,
                size_t bytes,
                int collnet,
                int nvls,
                int pipelined,
                int* algorithm,
                int* protocol,
                int* channels) {
  tuner_fixture.registered = collnet + nvls;
  *algorithm = is_asked_to("tree") || is_asked_to("half") ? kTree
               : is_asked_to("nonsense")                  ? 99
               : is_asked_to("pat")                       ? kPat
                                                          : *algorithm;
  *protocol =
      is_asked_to("tree") || is_asked_to("nonsense") || is_asked_to("pat") ? kSimple : *protocol;
  return note(context, function, bytes, pipelined, channels);
}
#else
static void answer(float* costs) {
  memcpy(tuner_fixture.costs, costs, sizeof(tuner_fixture.costs));
  if (is_asked_to("tree") || is_asked_to("tie")) {
    costs[kTree * kProtocols + kSimple] = 0;
  }
  if (is_asked_to("tie")) {
    costs[kRing * kProtocols + kSimple] = 0;
  }
  if (is_asked_to("pat")) {
    costs[kPat * kProtocols + kSimple] = 0;
  }
  if (is_asked_to("forbid-ring")) {
    costs[kRing * kProtocols + kSimple] = -1;
  }
  if (is_asked_to("nonsense")) {
    costs[kRing * kProtocols + kSimple] = NAN;
  }
  if (is_asked_to("elsewhere")) { /* what was not offered */
    costs[2 * kProtocols + kSimple] = 0;
    costs[3 * kProtocols + kSimple] = NAN;
  }
}

static int info(void* context,
                int function,
                size_t bytes,
                int pipelined,
                float** table,
                int algorithms,
                int protocols,
#if TUNER_VERSION >= 4
                int registered,
#endif
                int* channels) {
#if TUNER_VERSION >= 4
  tuner_fixture.registered = registered;
#endif
  if (algorithms != kAlgorithms || protocols != kProtocols) {
    return 3;
  }
  answer((float*)table);
  return note(context, function, bytes, pipelined, channels);
}
#endif

#if TUNER_VERSION >= 5
struct domains {
  int count, least, most;
};
struct constants {
  double base[kAlgorithms][kProtocols];
  double hardware[3][kAlgorithms][kProtocols];
  double bandwidths[5][4][3];
};
static int init(void** context,
                uint64_t comm_id,
                size_t nranks,
                size_t nnodes,
                log_function log,
                struct domains* domains,
                struct constants* constants) {
  tuner_fixture.comm_id = comm_id;
  tuner_fixture.domains = domains->count;
  tuner_fixture.ranks_min = domains->least;
  tuner_fixture.ranks_max = domains->most;
  tuner_fixture.net_latency = constants->hardware[2][kTree][kSimple];
  constants->bandwidths[4][3][2] = 1; /* the last one: writable */
  return begin(nranks, nnodes, log, context);
}
#else
static int init(size_t nranks, size_t nnodes, log_function log, void** context) {
  return begin(nranks, nnodes, log, context);
}
#endif

#if TUNER_VERSION >= 6
static int chunk(void* context,
                 int function,
                 size_t bytes,
                 int algorithm,
                 int protocol,
                 int channels,
                 size_t* size) {
  if (context != &own_context || function != tuner_fixture.function ||
      bytes != tuner_fixture.bytes || protocol != kSimple || algorithm < 0 || channels < 1) {
    return 3;
  }
  *size = is_asked_to("chunk-zero")   ? 0
          : is_asked_to("chunk-huge") ? SIZE_MAX
          : is_asked_to("chunk-odd")  ? 1000
                                      : *size;
  return is_asked_to("chunk-fail") ? 2 : 0;
}
#endif

struct table {
  const char* name;
  void (*init_entry)(void);
  void (*info_entry)(void);
  int (*finalize_entry)(void*);
#if TUNER_VERSION >= 6
  void (*chunk_entry)(void);
#endif
};
#define JOIN(a, b) a##b
#define SYMBOL(version) JOIN(ncclTunerPlugin_v, version)
extern EXPORT const struct table SYMBOL(TUNER_VERSION);
EXPORT const struct table SYMBOL(TUNER_VERSION) = {"fixture", (void (*)(void))init,
                                                   (void (*)(void))info, finalize
#if TUNER_VERSION >= 6
                                                   ,
                                                   (void (*)(void))chunk
#endif
};
