/* SPDX-License-Identifier: Apache-2.0
 * A profiler in NCCL's ABI v5: collectives and messages as a Chrome trace (about:tracing, Perfetto).
 * Build: cc -fPIC -shared chrome_profiler.c -o libnccl-profiler-chrome.so
 * Use:   NCCL_PROFILER_PLUGIN=chrome PLEXUS_PLUGIN_PATH=. CHROME_TRACE=/tmp/trace ./program
 * One file per process, /tmp/trace.PID.json. docs/profiling.md walks through it. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { kColl = 2, kP2p = 4, kProxyStep = 16, kSuccess = 0, kSystemError = 2 };

struct descriptor { /* the fields of ncclProfilerEventDescr_v5_t that are used here */
  uint64_t type;
  void* parent;
  int rank;
  union {
    struct { uint64_t sequence; const char* function; const void* send; void* recv; size_t count; int root; const char* datatype; } coll;
    struct { const char* function; void* buffer; const char* datatype; size_t count; int peer; } p2p;
    int step;
  } is;
};
struct event {
  char name[64], about[128]; /* `about`: what `plexus sim --workload` reads */
  double begin_us;
  int rank, lane; /* lane: 0 calls, 1 messages */
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static FILE* trace;
static int users; /* communicators */

static double now_us(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

static int init(void** context, uint64_t id, int* mask, const char* name, int nnodes, int nranks, int rank, void* log) {
  (void)id, (void)name, (void)nnodes, (void)rank, (void)log;
  int* size = malloc(sizeof *size);
  if (size == NULL) return kSystemError;
  pthread_mutex_lock(&mutex);
  if (users++ == 0) {
    const char* stem = getenv("CHROME_TRACE");
    char path[4096];
    snprintf(path, sizeof path, "%s.%d.json", stem == NULL ? "trace" : stem, (int)getpid());
    trace = fopen(path, "w");
    if (trace != NULL) fputs("[", trace);
  }
  pthread_mutex_unlock(&mutex);
  *mask = kColl | kP2p | kProxyStep;
  *size = nranks, *context = size; /* finalize comes only for what has a context */
  return trace == NULL ? kSystemError : kSuccess;
}

/* Kinds that were not asked for come too, as parents of those that were: no handle, no event. */
static int start(void* context, void** handle, struct descriptor* what) {
  struct event* event = (what->type & (kColl | kP2p | kProxyStep)) != 0 ? calloc(1, sizeof *event) : NULL;
  *handle = event;
  if (event == NULL) return kSuccess;
  if (what->type == kColl) {
    snprintf(event->name, sizeof event->name, "%s %zu", what->is.coll.function, what->is.coll.count);
    snprintf(event->about, sizeof event->about, "\"collective\":\"%s\",\"count\":%zu,\"datatype\":\"%s\",\"nranks\":%d",
             what->is.coll.function, what->is.coll.count, what->is.coll.datatype, *(int*)context);
  } else if (what->type == kP2p)
    snprintf(event->name, sizeof event->name, "%s %zu peer %d", what->is.p2p.function, what->is.p2p.count, what->is.p2p.peer);
  else
    snprintf(event->name, sizeof event->name, "message %d", what->is.step);
  event->rank = what->rank, event->lane = what->type == kProxyStep, event->begin_us = now_us();
  return kSuccess;
}

static int stop(void* handle) {
  struct event* event = handle;
  pthread_mutex_lock(&mutex);
  fprintf(trace, "%s{\"name\":\"%s\",\"ph\":\"X\",\"ts\":%.3f,\"dur\":%.3f,\"pid\":%d,\"tid\":%d,\"args\":{%s}}", ftell(trace) > 1 ? ",\n" : "\n",
          event->name, event->begin_us, now_us() - event->begin_us, event->rank, event->lane, event->about);
  pthread_mutex_unlock(&mutex);
  free(event);
  return kSuccess;
}
static int record(void* handle, int state, void* what) { return (void)handle, (void)state, (void)what, kSuccess; }

static int finalize(void* context) {
  free(context);
  pthread_mutex_lock(&mutex);
  if (--users == 0) fputs("\n]\n", trace), fclose(trace), trace = NULL;
  pthread_mutex_unlock(&mutex);
  return kSuccess;
}

__attribute__((visibility("default"))) struct {
  const char* name;
  void *init, *start, *stop, *record, *finalize;
} ncclProfiler_v5 = {"Chrome", (void*)init, (void*)start, (void*)stop, (void*)record, (void*)finalize};
