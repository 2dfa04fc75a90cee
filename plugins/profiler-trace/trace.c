/* SPDX-License-Identifier: Apache-2.0
 * A profiler in NCCL's ABI v4 to v7: calls and network messages of a run in Chrome's trace format
 * (Perfetto, about:tracing), as `plexus sim --trace` writes those of a simulation. `args` of a call
 * are what `plexus sim --workload` reads. docs/profiling.md walks through it. Threads: any; `mutex`
 * protects the file and the numbers. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "plugin-api/nccl/profiler.h"

enum { kGroup = 1, kColl = 2, kP2p = 4, kProxyStep = 16, kSuccess = 0, kSystemError = 2 };

struct event {
  char name[64], about[224];
  double begin_us;
  uint64_t group; /* its number; of a group alone, which has no line in the file */
  int rank, lane; /* lane: 0 calls, 1 messages */
};

static const char kEnd[] = "\n]\n";

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static FILE* trace;
static int users; /* communicators */
static uint64_t groups;

static double now_us(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

/* One file per process. A communicator after the last one has gone continues it before its end. */
static void open_trace(nccl_log_fn log) {
  static char path[4096];
  const char* stem = getenv("PLEXUS_TRACE");
  if (path[0] != '\0') {
    trace = fopen(path, "r+");
    if (trace != NULL)
      fseek(trace, -(long)strlen(kEnd), SEEK_END);
  } else {
    snprintf(path, sizeof path, "%s.%d.json", stem == NULL ? "trace" : stem, (int)getpid());
    trace = fopen(path, "w");
    if (trace != NULL)
      fputs("[", trace);
  }
  if (trace == NULL && log != NULL)
    log(NCCL_LOG_WARN, 0, __FILE__, __LINE__,
        "profiler trace: cannot write %s: set PLEXUS_TRACE to a file in a folder of yours", path);
}

static int32_t init(void** context,
                    uint64_t id,
                    int* mask,
                    const char* name,
                    int nnodes,
                    int nranks,
                    int rank,
                    nccl_log_fn log) {
  (void)id, (void)name, (void)nnodes, (void)rank;
  int* size = malloc(sizeof *size);
  if (size == NULL)
    return kSystemError;
  pthread_mutex_lock(&mutex);
  if (trace == NULL)
    open_trace(log);
  const int is_open = trace != NULL;
  users += is_open;
  pthread_mutex_unlock(&mutex);
  if (!is_open)
    return free(size), kSystemError;
  *mask = kGroup | kColl | kP2p | kProxyStep;
  *size = nranks, *context = size; /* finalize comes only for what has a context */
  return kSuccess;
}

/* Kinds that were not asked for come too, as parents of those that were: no handle, no event. */
static int32_t start(void* context, void** handle, nccl_profile_event_v5_t* what) {
  const int nranks = *(int*)context;
  const int is_known = (what->type & (kGroup | kColl | kP2p | kProxyStep)) != 0;
  struct event* event = is_known ? calloc(1, sizeof *event) : NULL;
  *handle = event;
  if (event == NULL)
    return kSuccess;
  if (what->type == kGroup) {
    pthread_mutex_lock(&mutex);
    event->group = ++groups;
    pthread_mutex_unlock(&mutex);
  } else if (what->type == kColl) {
    const nccl_profile_coll_v4_t* coll = &what->is.coll.v4;
    snprintf(event->name, sizeof event->name, "%s %zu", coll->function, coll->count);
    snprintf(event->about, sizeof event->about,
             "\"collective\":\"%s\",\"count\":%zu,\"datatype\":\"%s\",\"nranks\":%d",
             coll->function, coll->count, coll->datatype, nranks);
  } else if (what->type == kP2p) {
    const nccl_profile_p2p_v5_t* p2p = &what->is.p2p;
    const struct event* group = p2p->parent_group;
    snprintf(event->name, sizeof event->name, "%s %zu peer %d", p2p->function, p2p->count,
             p2p->peer);
    snprintf(
        event->about, sizeof event->about,
        "\"p2p\":\"%s\",\"count\":%zu,\"datatype\":\"%s\",\"nranks\":%d,\"peer\":%d,\"group\":%llu",
        p2p->function, p2p->count, p2p->datatype, nranks, p2p->peer,
        group == NULL ? 0 : (unsigned long long)group->group);
  } else {
    snprintf(event->name, sizeof event->name, "message %d", what->is.proxy_step.step);
  }
  event->rank = what->rank, event->lane = what->type == kProxyStep, event->begin_us = now_us();
  return kSuccess;
}

/* Members that v5 has too are where they are there. */
static int32_t start_v7(void* context, void** handle, nccl_profile_event_v7_t* what) {
  const int32_t result = start(context, handle, (nccl_profile_event_v5_t*)(void*)what);
  struct event* event = *handle;
  const uint64_t tag = what->type == kColl  ? what->is.coll.user_tag
                       : what->type == kP2p ? what->is.p2p.user_tag
                                            : 0;
  if (event != NULL && tag != 0) {
    const size_t length = strlen(event->about);
    snprintf(event->about + length, sizeof event->about - length, ",\"tag\":%llu",
             (unsigned long long)tag);
  }
  return result;
}

/* Groups are the parents of calls there, and nothing else. */
static int32_t start_v4(void* context, void** handle, nccl_profile_event_v4_t* what) {
  nccl_profile_event_v5_t event = {.type = what->type, .parent = what->parent, .rank = what->rank};
  if (what->type == kColl)
    event.is.coll.v4 = what->is.coll;
  else if (what->type == kP2p)
    event.is.p2p = (nccl_profile_p2p_v5_t){.function = what->is.p2p.function,
                                           .datatype = what->is.p2p.datatype,
                                           .count = what->is.p2p.count,
                                           .peer = what->is.p2p.peer,
                                           .parent_group = what->parent};
  else if (what->type == kProxyStep)
    event.is.proxy_step = what->is.proxy_step;
  return start(context, handle, &event);
}

static int32_t stop(void* handle) {
  struct event* event = handle;
  pthread_mutex_lock(&mutex);
  if (event->group == 0)
    fprintf(trace,
            "%s{\"name\":\"%s\",\"ph\":\"X\",\"ts\":%.3f,\"dur\":%.3f,\"pid\":%d,\"tid\":%d,"
            "\"args\":{%s}}",
            ftell(trace) > 1 ? ",\n" : "\n", event->name, event->begin_us,
            now_us() - event->begin_us, event->rank, event->lane, event->about);
  pthread_mutex_unlock(&mutex);
  free(event);
  return kSuccess;
}

static int32_t record(void* handle, int state, nccl_profile_state_t* what) {
  return (void)handle, (void)state, (void)what, kSuccess;
}

static int32_t init_v4(void** context,
                       int* mask,
                       const char* name,
                       uint64_t id,
                       int nnodes,
                       int nranks,
                       int rank,
                       nccl_log_fn log) {
  return init(context, id, mask, name, nnodes, nranks, rank, log);
}

static int32_t finalize(void* context) {
  free(context);
  pthread_mutex_lock(&mutex);
  if (--users == 0)
    fputs(kEnd, trace), fclose(trace), trace = NULL;
  pthread_mutex_unlock(&mutex);
  return kSuccess;
}

#define EXPORTED __attribute__((visibility("default")))
EXPORTED const nccl_profiler_v4_t ncclProfiler_v4 = {"Trace", init_v4, start_v4,
                                                     stop,    record,  finalize};
EXPORTED const nccl_profiler_v5_t ncclProfiler_v5 = {"Trace", init, start, stop, record, finalize};
EXPORTED const nccl_profiler_v6_t ncclProfiler_v6 = {"Trace", init, start, stop, record, finalize};
EXPORTED const nccl_profiler_v7_t ncclProfiler_v7 = {"Trace", init,   start_v7,
                                                     stop,    record, finalize};
