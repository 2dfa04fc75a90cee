/* SPDX-License-Identifier: Apache-2.0
 *
 * A net plugin of NCCL's ABI v6 (NCCL 2.13), written from the published layout alone: it shares no
 * header with the library that loads it. One buffer per receive, sizes are int.
 */
#define _GNU_SOURCE
#include "tests/abi/nccl_net/tcp_engine.h"

struct properties_v6 {
  char* name;
  char* pci_path;
  uint64_t guid;
  int pointers;
  int speed;
  int port;
  float latency;
  int comms_max;
  int recvs_max;
};

struct net_v6 {
  const char* name;
  int (*init)(log_function log);
  int (*devices)(int* count);
  int (*properties)(int device, struct properties_v6* properties);
  int (*listen)(int device, void* handle, void** listen);
  int (*connect)(int device, void* handle, void** send);
  int (*accept)(void* listen, void** recv);
  int (*reg)(void* connection, void* data, int size, int type, void** memory);
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
};

static int properties(int device, struct properties_v6* p) {
  static char name[] = "loop-v6";
  *p = (struct properties_v6){.name = name,
                              .guid = (uint64_t)device,
                              .pointers = 1,
                              .speed = -1,
                              .comms_max = 1024,
                              .recvs_max = 1};
  return kSuccess;
}
static int start_listen(int device, void* handle, void** listen) {
  (void)device;
  return tcp_listen(handle, listen);
}
static int start_connect(int device, void* handle, void** send) {
  (void)device;
  return tcp_connect(handle, send);
}
static int reg(void* connection, void* data, int size, int type, void** memory) {
  (void)data;
  return size < 0 || type != 1 ? broken(kInternalError, "bad region")
                               : tcp_register(connection, memory);
}
static int isend(void* send, void* data, int size, int tag, void* memory, void** request) {
  (void)memory;
  return size < 0 ? broken(kInternalError, "bad size")
                  : tcp_isend(send, data, (size_t)size, tag, request);
}
static int irecv(
    void* recv, int n, void** data, int* sizes, int* tags, void** memory, void** request) {
  (void)memory;
  if (n != 1 || sizes[0] < 0) {
    return broken(kInternalError, "v6 of this plugin takes one buffer");
  }
  size_t size = (size_t)sizes[0];
  return tcp_irecv(recv, 1, data, &size, tags, request);
}
static int iflush(void* recv, int n, void** data, int* sizes, void** memory, void** request) {
  (void)recv, (void)n, (void)data, (void)sizes, (void)memory;
  *request = NULL;
  return kSuccess;
}

#ifndef NETWORK_NAME
#define NETWORK_NAME "TcpV6"
#endif
extern const struct net_v6 ncclNetPlugin_v6;
EXPORT const struct net_v6 ncclNetPlugin_v6 = {
    NETWORK_NAME, tcp_init_once, tcp_devices, properties,     start_listen,    start_connect,
    tcp_accept,   reg,           NULL,        tcp_deregister, isend,           irecv,
    iflush,       tcp_test,      tcp_close,   tcp_close,      tcp_close_listen};
