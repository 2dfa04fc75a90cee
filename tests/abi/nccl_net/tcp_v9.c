/* SPDX-License-Identifier: Apache-2.0
 *
 * Net plugins of NCCL's ABIs v9, v10, v11, v12 and of the cross-dc branch's v11, one per value of
 * ABI_VERSION and ABI_CROSS_DC, written from the published layouts alone. From v11 on each
 * communicator has a context; a call with another one's is refused.
 */
#define _GNU_SOURCE
#include "tests/abi/nccl_net/tcp_engine.h"

#ifndef ABI_CROSS_DC
#define ABI_CROSS_DC 0
#endif
#define HAS_CONTEXT (ABI_VERSION >= 11 && !ABI_CROSS_DC)
#define HAS_PROFILER (ABI_VERSION >= 10)
#define HAS_CONNECT_CONFIG (HAS_PROFILER && !HAS_CONTEXT)
#define FUSED_MAX (ABI_VERSION >= 12 ? 8 : 4)

typedef int (*profiler_function)(void** event, int type, void* parent, int64_t id, void* data);
struct config {
  int traffic_class;
};
struct fused {
  int count;
  int devices[FUSED_MAX];
};

struct properties {
  char* name;
  char* pci_path;
  uint64_t guid;
  int pointers, registration_is_global, force_flush, speed, port;
  float latency;
  int comms_max, recvs_max, device_type, device_version;
  struct fused fused;
  size_t p2p_max, coll_max;
#if ABI_CROSS_DC
  uint64_t fabric;
#elif ABI_VERSION >= 11
  int multi_request_max;
#endif
#if ABI_VERSION >= 12
  int16_t rail, plane;
#endif
};

#if HAS_CONTEXT
#define CONTEXT void *context,
#define CHECK_CONTEXT                                           \
  if (*(uint64_t*)context != kMagic) {                          \
    return broken(kInternalError, "not a context of this one"); \
  }
#else
#define CONTEXT
#define CHECK_CONTEXT
#endif
#if HAS_CONNECT_CONFIG
#define CONFIG struct config *config,
#else
#define CONFIG
#endif
#if HAS_PROFILER
#define PROFILE void *profile,
#define PROFILES void **profiles,
#else
#define PROFILE
#define PROFILES
#endif

struct net {
  const char* name;
#if HAS_CONTEXT
  int (*init)(void** context, uint64_t id, struct config*, log_function, profiler_function);
#elif HAS_PROFILER
  int (*init)(log_function, profiler_function);
#else
  int (*init)(log_function);
#endif
  int (*devices)(int* count);
  int (*properties)(int device, struct properties* properties);
  int (*listen)(CONTEXT int device, void* handle, void** listen);
  int (*connect)(CONTEXT int device, CONFIG void* handle, void** send, void** offload);
  int (*accept)(void* listen, void** recv, void** offload);
  int (*reg)(void* connection, void* data, size_t size, int type, void** memory);
  int (*reg_dmabuf)(void*, void*, size_t, int, uint64_t, int, void**);
  int (*dereg)(void* connection, void* memory);
  int (*isend)(void* send, void* data, size_t size, int tag, void* memory, PROFILE void** request);
  int (*irecv)(void* recv,
               int n,
               void** data,
               size_t* sizes,
               int* tags,
               void** memory,
               PROFILES void** request);
  int (*iflush)(void* recv, int n, void** data, int* sizes, void** memory, void** request);
  int (*test)(void* request, int* done, int* sizes);
  int (*close_send)(void* send);
  int (*close_recv)(void* recv);
  int (*close_listen)(void* listen);
  int (*device_memory)(void* connection, void* memory, void** pointer);
  int (*irecv_consumed)(void* recv, int n, void* request);
  int (*make_virtual)(int* device, struct fused* parts);
#if ABI_CROSS_DC
  int (*net_path)(uint64_t source, uint64_t target, int* level);
#elif HAS_CONTEXT
  int (*finalize)(void* context);
  int (*set_attributes)(void* context, void* attributes);
#endif
};

#if HAS_CONTEXT
static int init(void** context,
                uint64_t id,
                struct config* config,
                log_function log,
                profiler_function profiler) {
  (void)id, (void)config;
  say = log;
  if (is_fault("init") || profiler == NULL) {
    return broken(kSystemError, "init fails on purpose");
  }
  uint64_t* made = malloc(sizeof *made);
  *made = kMagic;
  *context = made;
  __atomic_add_fetch(&tcp_fixture_counters.contexts, 1, __ATOMIC_RELAXED);
  return kSuccess;
}
static int finalize(void* context) {
  CHECK_CONTEXT
  *(uint64_t*)context = 0;
  free(context);
  __atomic_add_fetch(&tcp_fixture_counters.contexts, -1, __ATOMIC_RELAXED);
  return kSuccess;
}
#elif HAS_PROFILER
static int init(log_function log, profiler_function profiler) {
  return profiler == NULL ? kInternalError : tcp_init_once(log);
}
#else
static int init(log_function log) { return tcp_init_once(log); }
#endif

static int properties(int device, struct properties* p) {
  if (is_fault("properties")) {
    return broken(kSystemError, "properties fail on purpose");
  }
  p->name = "loop-new";
  p->guid = (uint64_t)device + 1;
  p->pointers = 1;
  p->speed = 100000;
  p->comms_max = 1024;
  p->recvs_max = kGroupMax;
  p->device_type = is_fault("offload") ? 1 : 0;
  p->fused.count = 1;
  p->fused.devices[0] = device;
  p->p2p_max = is_fault("limit") ? 0 : (size_t)1 << 40;
  p->coll_max = (size_t)1 << 40;
#ifdef QUIRK_NO_LIMITS /* what no host reads of a net plugin */
  p->comms_max = 0;
  p->coll_max = 0;
#endif
#if ABI_CROSS_DC
  p->fabric = (uint64_t)device;
#endif
#if ABI_VERSION >= 12
  p->rail = (int16_t)device;
  p->plane = -1;
#endif
  return kSuccess;
}
static int start_listen(CONTEXT int device, void* handle, void** listen) {
  CHECK_CONTEXT(void) device;
  return tcp_listen(handle, listen);
}
static int start_connect(CONTEXT int device, CONFIG void* handle, void** send, void** offload) {
  CHECK_CONTEXT
#if HAS_CONNECT_CONFIG
  if (config->traffic_class < -1) {
    return broken(kInternalError, "bad traffic class");
  }
#endif
  (void)device;
  if (offload != NULL || is_fault("offload_needed")) {
    *offload = NULL;
  }
  return tcp_connect(handle, send);
}
static int start_accept(void* listen, void** recv, void** offload) {
  (void)offload;
  return tcp_accept(listen, recv);
}
static int reg(void* connection, void* data, size_t size, int type, void** memory) {
  (void)data, (void)size;
  return type != 1 ? broken(kInternalError, "bad region") : tcp_register(connection, memory);
}
static int isend(
    void* send, void* data, size_t size, int tag, void* memory, PROFILE void** request) {
  (void)memory;
#if HAS_PROFILER
  (void)profile;
#endif
  return tcp_isend(send, data, size, tag, request);
}
static int irecv(void* recv,
                 int n,
                 void** data,
                 size_t* sizes,
                 int* tags,
                 void** memory,
                 PROFILES void** request) {
  (void)memory;
#if HAS_PROFILER
  if (profiles == NULL) {
    return broken(kInternalError, "no profiles");
  }
#endif
  return tcp_irecv(recv, n, data, sizes, tags, request);
}
static int iflush(void* recv, int n, void** data, int* sizes, void** memory, void** request) {
  (void)recv, (void)n, (void)data, (void)sizes, (void)memory;
  *request = NULL;
  return kSuccess;
}
#if ABI_CROSS_DC
// Two rails in each datacenter.
static int net_path(uint64_t source, uint64_t target, int* level) {
  *level = source / 2 == target / 2 ? 0 : target > 7 ? 2 : 1;
  return kSuccess;
}
#define LAST net_path
#elif HAS_CONTEXT
#define LAST finalize, NULL
#endif

#define JOIN(a, b) a##b
#define SYMBOL(version) JOIN(ncclNetPlugin_v, version)
extern struct net SYMBOL(ABI_VERSION);
EXPORT struct net SYMBOL(ABI_VERSION) = {
    "TcpNew",  init,      tcp_devices,      properties, start_listen, start_connect, start_accept,
    reg,       NULL,      tcp_deregister,   isend,      irecv,        iflush,        tcp_test,
    tcp_close, tcp_close, tcp_close_listen, NULL,       NULL,         NULL,
#ifdef LAST
    LAST
#endif
};
