/* SPDX-License-Identifier: Apache-2.0
 *
 * A profiler of NCCL's ABI (ABI_VERSION 4 to 7) that writes one line per call to
 * $PROFILER_FIXTURE_FILE.PID. Written from the published layouts alone, without a header of ours.
 * Like NVIDIA's inspector it keeps the addresses of names until finalize, and has no context when
 * it is switched off; like NVIDIA's example it sets the mask at the first init only, keeps its
 * address, and writes it again when the last context has ended. PROFILER_FIXTURE_MASK: the kinds of
 * event it wants; PROFILER_FIXTURE_FAULT: init, start, and off: init gives no context.
 */
#define _POSIX_C_SOURCE 200809L /* strdup */
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))
enum {
  kGroup = 1,
  kColl = 2,
  kP2p = 4,
  kOp = 8,
  kStep = 16,
  kKernelChannel = 64,
  kGroupApi = 256,
  kCollApi = 512,
  kP2pApi = 1024
};

typedef void (*log_function)(
    int level, unsigned long subsystems, const char* file, int line, const char* format, ...);

struct coll {
  uint64_t sequence;
  const char* function;
  const void* send;
  void* recv;
  size_t count;
  int root;
  const char* datatype;
  uint8_t channels, warps;
  const char *algorithm, *protocol;
#if ABI_VERSION > 4
  void* group;
#endif
#if ABI_VERSION > 6
  const char* variant;
  bool symmetric;
  uint64_t tag;
#endif
};
struct p2p {
  const char* function;
  void* buffer;
  const char* datatype;
  size_t count;
  int peer;
  uint8_t channels;
#if ABI_VERSION > 4
  void* group;
#endif
#if ABI_VERSION > 6
  uint64_t tag;
#endif
};
struct op {
  pid_t pid;
  uint8_t channel;
  int peer, steps, chunk, is_send;
};
struct api {
  const char* function;
  size_t count;
  const char* datatype;
};
struct kernel_channel {
  uint8_t channel;
  uint64_t timer;
};
struct event {
#if ABI_VERSION > 4
  uint64_t type;
#else
  uint8_t type;
#endif
  void* parent;
  int rank;
  union {
    struct coll coll;
    struct p2p p2p;
    struct op op;
    struct api api;
    struct kernel_channel kernel_channel;
    int step;
  } is;
};

/* Names that were told, as they were then. */
enum { kNamesMax = 256 };
struct context {
  const char* reported[kNamesMax];
  char* was[kNamesMax];
  int names;
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static FILE* file;
static uintptr_t last_event;
static int* first_mask; /* as the first init was given it */
static int contexts;

static int is_fault(const char* name) {
  const char* fault = getenv("PROFILER_FIXTURE_FAULT");
  return fault != NULL && strcmp(fault, name) == 0;
}

#define WRITE(...)                                               \
  do {                                                           \
    pthread_mutex_lock(&mutex);                                  \
    fprintf(file, __VA_ARGS__), fputc('\n', file), fflush(file); \
    pthread_mutex_unlock(&mutex);                                \
  } while (0)

static void keep(struct context* context, const char* name) {
  pthread_mutex_lock(&mutex);
  if (context->names < kNamesMax) {
    context->reported[context->names] = name;
    context->was[context->names++] = strdup(name);
  }
  pthread_mutex_unlock(&mutex);
}

static int wanted_mask(void) {
  const char* wanted = getenv("PROFILER_FIXTURE_MASK");
  return wanted == NULL ? 0xffff : atoi(wanted);
}

static int begin(void** context, int* mask, const char* name, int nnodes, int nranks, int rank) {
  pthread_mutex_lock(&mutex);
  if (file == NULL) {
    char path[4096];
    snprintf(path, sizeof path, "%s.%d", getenv("PROFILER_FIXTURE_FILE"), (int)getpid());
    file = fopen(path, "w");
  }
  pthread_mutex_unlock(&mutex);
  if (file == NULL || is_fault("init")) {
    return 3;
  }
  if (is_fault("off")) {
    return 0;
  }
  *context = calloc(1, sizeof(struct context));
  keep(*context, name);
  WRITE("init %p '%s' nnodes %d nranks %d rank %d", *context, name, nnodes, nranks, rank);
  pthread_mutex_lock(&mutex);
  ++contexts;
  if (first_mask == NULL) {
    first_mask = mask;
    *mask = wanted_mask();
  }
  pthread_mutex_unlock(&mutex);
  return 0;
}
#if ABI_VERSION == 4
static int init(void** context,
                int* mask,
                const char* name,
                uint64_t id,
                int nnodes,
                int nranks,
                int rank,
                log_function say) {
#else
static int init(void** context,
                uint64_t id,
                int* mask,
                const char* name,
                int nnodes,
                int nranks,
                int rank,
                log_function say) {
#endif
  return id != 0 && say != NULL ? begin(context, mask, name, nnodes, nranks, rank) : 4;
}

static void* group_of(const struct event* what) {
#if ABI_VERSION > 4
  return what->type == kColl ? what->is.coll.group : what->type == kP2p ? what->is.p2p.group : NULL;
#else
  return (what->type == kColl || what->type == kP2p) ? what->parent : NULL;
#endif
}

static unsigned long tag_of(const struct event* what) {
#if ABI_VERSION > 6
  return what->type == kColl ? what->is.coll.tag : 0;
#else
  (void)what;
  return 0;
#endif
}

static int start(void* context, void** event, struct event* what) {
  char about[256] = "";
  if (is_fault("start")) {
    return 3;
  }
  switch ((int)what->type) {
    case kColl:
      snprintf(about, sizeof about, "%s sequence %lu count %zu %s channels %d %s %s tag %lu",
               what->is.coll.function, (unsigned long)what->is.coll.sequence, what->is.coll.count,
               what->is.coll.datatype, what->is.coll.channels, what->is.coll.algorithm,
               what->is.coll.protocol, tag_of(what));
      keep(context, what->is.coll.function);
      keep(context, what->is.coll.algorithm);
      keep(context, what->is.coll.protocol);
      keep(context, what->is.coll.datatype);
      break;
    case kP2p:
      snprintf(about, sizeof about, "%s count %zu %s peer %d channels %d", what->is.p2p.function,
               what->is.p2p.count, what->is.p2p.datatype, what->is.p2p.peer, what->is.p2p.channels);
      break;
    case kOp:
      snprintf(about, sizeof about, "%s channel %d peer %d steps %d",
               what->is.op.is_send ? "send" : "recv", what->is.op.channel, what->is.op.peer,
               what->is.op.steps);
      break;
    case kStep:
      snprintf(about, sizeof about, "step %d", what->is.step);
      break;
    case kKernelChannel:
      snprintf(about, sizeof about, "channel %d timer %lu", what->is.kernel_channel.channel,
               (unsigned long)what->is.kernel_channel.timer);
      break;
    case kCollApi:
    case kP2pApi:
      snprintf(about, sizeof about, "%s count %zu %s", what->is.api.function, what->is.api.count,
               what->is.api.datatype);
      break;
    default:
      break;
  }
  *event = (void*)__atomic_add_fetch(&last_event, 1, __ATOMIC_RELAXED);
  WRITE("start %lu type %d parent %lu group %lu context %p rank %d %s",
        (unsigned long)(uintptr_t)*event, (int)what->type, (unsigned long)(uintptr_t)what->parent,
        (unsigned long)(uintptr_t)group_of(what), context, what->rank, about);
  return 0;
}

static int stop(void* event) {
  WRITE("stop %lu", (unsigned long)(uintptr_t)event);
  return 0;
}
static int record(void* event, int state, void* what) {
  WRITE("state %lu %d bytes %zu", (unsigned long)(uintptr_t)event, state,
        what == NULL ? 0 : *(size_t*)what);
  return 0;
}
static int finalize(void* opaque) {
  struct context* context = opaque;
  int changed = 0;
  for (int i = 0; i < context->names; ++i) { /* without a context: SIGSEGV */
    changed += strcmp(context->reported[i], context->was[i]) != 0;
    free(context->was[i]);
  }
  WRITE("finalize %p names %d changed %d", opaque, context->names, changed);
  free(context);
  pthread_mutex_lock(&mutex);
  if (--contexts == 0) {
    *first_mask = wanted_mask();
  }
  pthread_mutex_unlock(&mutex);
  return 0;
}

struct table {
  const char* name;
  void *init, *start, *stop, *record, *finalize;
};
#define NAME_OF(version) ncclProfiler_v##version
#define NAME(version) NAME_OF(version)
EXPORT struct table NAME(ABI_VERSION) = {"Recorder",  (void*)init,   (void*)start,
                                         (void*)stop, (void*)record, (void*)finalize};
