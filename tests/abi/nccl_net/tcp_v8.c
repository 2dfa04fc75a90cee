/* SPDX-License-Identifier: Apache-2.0
 *
 * A net plugin of NCCL's ABI v8 (NCCL 2.20), written from the published layout alone: it shares no
 * header with the library that loads it. With ABI_VERSION 7, of v7 (NCCL 2.19), which is nearly the
 * same. Grouped receives of up to four buffers; no flush entry.
 */
#define _GNU_SOURCE
#include "tests/abi/nccl_net/tcp_engine.h"

#if ABI_VERSION == 7
typedef int region_size;
#else
typedef size_t region_size;
#endif

struct properties_v8 {
  char* name;
  char* pci_path;
  uint64_t guid;
  int pointers;
#if ABI_VERSION >= 8
  int registration_is_global;
#endif
  int speed;
  int port;
  float latency;
  int comms_max;
  int recvs_max;
  int device_type;
  int device_version;
};

struct net_v8 {
  const char* name;
  int (*init)(log_function log);
  int (*devices)(int* count);
  int (*properties)(int device, struct properties_v8* properties);
  int (*listen)(int device, void* handle, void** listen);
  int (*connect)(int device, void* handle, void** send, void** offload);
  int (*accept)(void* listen, void** recv, void** offload);
  int (*reg)(void* connection, void* data, region_size size, int type, void** memory);
  int (*reg_dmabuf)(void*, void*, size_t, int, uint64_t, int, void**);
  int (*dereg)(void* connection, void* memory);
  int (*isend)(void* send, void* data, int size, int tag, void* memory, void** request);
  int (*irecv)(
      void* recv, int n, void** data, int* sizes, int* tags, void** memory, void** request);
  int (*iflush)(void* recv, int n, void** data, int* sizes, void** memory, void** request);
  int (*test)(void* request, int* done, int* sizes);
  int (*close_send)(void* send);
  int (*close_recv)(void* recv);
  int (*close_listen)(void* listen);
  int (*device_memory)(void* connection, void* memory, void** pointer);
  int (*irecv_consumed)(void* recv, int n, void* request);
};

#define JOIN(a, b) a##b
#define SYMBOL(version) JOIN(ncclNetPlugin_v, version)
extern struct net_v8 SYMBOL(ABI_VERSION);

/* The network's name changes at init, as some vendors' do. */
static int init(log_function log) {
  SYMBOL(ABI_VERSION).name = "TcpOld-ready";
  return tcp_init_once(log);
}
static int properties(int device, struct properties_v8* p) {
  p->name = "loop-old"; /* the other fields only where they are not 0: the caller zeroed them */
  p->guid = (uint64_t)device + 1;
  p->pointers = 1;
  p->speed = 25000;
  p->latency = 1.5f;
  p->comms_max = 1024;
  p->recvs_max = kGroupMax;
  return kSuccess;
}
static int start_listen(int device, void* handle, void** listen) {
  (void)device;
  return tcp_listen(handle, listen);
}
static int start_connect(int device, void* handle, void** send, void** offload) {
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
static int reg(void* connection, void* data, region_size size, int type, void** memory) {
  (void)data, (void)size;
  return type != 1 ? broken(kInternalError, "bad region") : tcp_register(connection, memory);
}
static int isend(void* send, void* data, int size, int tag, void* memory, void** request) {
  (void)memory;
  return size < 0 ? broken(kInternalError, "bad size")
                  : tcp_isend(send, data, (size_t)size, tag, request);
}
static int irecv(
    void* recv, int n, void** data, int* sizes, int* tags, void** memory, void** request) {
  (void)memory;
  size_t capacities[kGroupMax] = {0};
  for (int i = 0; i < n && i < kGroupMax; ++i) {
    if (sizes[i] < 0) {
      return broken(kInternalError, "bad size");
    }
    capacities[i] = (size_t)sizes[i];
  }
  return tcp_irecv(recv, n, data, capacities, tags, request);
}

#ifdef QUIRK_FILLS_AT_INIT /* until then only the name and init are there (HPC-X) */
static int init_late(log_function log);
EXPORT struct net_v8 SYMBOL(ABI_VERSION) = {.name = "TcpLate", .init = init_late};
static const struct net_v8 filled = {
#else
EXPORT struct net_v8 SYMBOL(ABI_VERSION) = {
#endif
    "TcpOld",  init,      tcp_devices,      properties, start_listen, start_connect, start_accept,
    reg,       NULL,      tcp_deregister,   isend,      irecv,        NULL,          tcp_test,
    tcp_close, tcp_close, tcp_close_listen, NULL,       NULL};

#ifdef QUIRK_FILLS_AT_INIT
static int init_late(log_function log) {
  SYMBOL(ABI_VERSION) = filled;
  return init(log);
}
#endif
