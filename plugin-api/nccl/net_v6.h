/* SPDX-License-Identifier: Apache-2.0
 *
 * NCCL's net plugin ABI v6, NCCL 2.13: the oldest that is still in use. Initialised once per
 * process.
 */
#pragma once

#include "plugin-api/nccl/net_common.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct nccl_net_properties_v6 {
  const char* name;
  const char* pci_path; /* null: virtual device */
  uint64_t guid;
  int pointer_support; /* NCCL_MEMORY_* mask */
  int speed;           /* Mbit/s */
  int port;
  float latency; /* us */
  int comms_max;
  int recvs_max;
} nccl_net_properties_v6_t;
NCCL_GOLDEN_SIZE(nccl_net_properties_v6_t, 48);
NCCL_GOLDEN_AT(nccl_net_properties_v6_t, guid, 16);
NCCL_GOLDEN_AT(nccl_net_properties_v6_t, pointer_support, 24);
NCCL_GOLDEN_AT(nccl_net_properties_v6_t, speed, 28);
NCCL_GOLDEN_AT(nccl_net_properties_v6_t, port, 32);
NCCL_GOLDEN_AT(nccl_net_properties_v6_t, latency, 36);
NCCL_GOLDEN_AT(nccl_net_properties_v6_t, comms_max, 40);
NCCL_GOLDEN_AT(nccl_net_properties_v6_t, recvs_max, 44);

typedef struct nccl_net_v6 {
  const char* name;
  nccl_init_v6_fn init;
  nccl_devices_fn devices;
  int32_t (*get_properties)(int device, nccl_net_properties_v6_t* properties);
  nccl_listen_v6_fn listen;
  nccl_connect_v6_fn connect;
  nccl_accept_v6_fn accept;
  nccl_register_v6_fn register_memory;
  nccl_register_dmabuf_fn register_dmabuf;
  nccl_deregister_fn deregister;
  nccl_isend_v6_fn isend;
  nccl_irecv_v6_fn irecv;
  nccl_iflush_fn iflush;
  nccl_test_fn test;
  nccl_close_fn close_send;
  nccl_close_fn close_recv;
  nccl_close_fn close_listen;
} nccl_net_v6_t;
NCCL_GOLDEN_SIZE(nccl_net_v6_t, 136);
NCCL_GOLDEN_AT(nccl_net_v6_t, connect, 8 * 5);
NCCL_GOLDEN_AT(nccl_net_v6_t, register_memory, 8 * 7);
NCCL_GOLDEN_AT(nccl_net_v6_t, isend, 8 * 10);
NCCL_GOLDEN_AT(nccl_net_v6_t, test, 8 * 13);
NCCL_GOLDEN_AT(nccl_net_v6_t, close_listen, 8 * 16);

#ifdef __cplusplus
}
#endif
