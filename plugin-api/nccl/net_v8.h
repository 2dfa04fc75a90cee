/* SPDX-License-Identifier: Apache-2.0
 *
 * NCCL's net plugin ABI v8, NCCL 2.20: registration takes a size_t, and may be global.
 */
#pragma once

#include "plugin-api/nccl/net_common.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct nccl_net_properties_v8 {
  const char* name;
  const char* pci_path; /* null: virtual device */
  uint64_t guid;
  int pointer_support; /* NCCL_MEMORY_* mask */
  int registration_is_global;
  int speed; /* Mbit/s */
  int port;
  float latency; /* us */
  int comms_max;
  int recvs_max;
  int device_type;
  int device_version;
} nccl_net_properties_v8_t;
NCCL_GOLDEN_SIZE(nccl_net_properties_v8_t, 64);
NCCL_GOLDEN_AT(nccl_net_properties_v8_t, registration_is_global, 28);
NCCL_GOLDEN_AT(nccl_net_properties_v8_t, speed, 32);
NCCL_GOLDEN_AT(nccl_net_properties_v8_t, port, 36);
NCCL_GOLDEN_AT(nccl_net_properties_v8_t, latency, 40);
NCCL_GOLDEN_AT(nccl_net_properties_v8_t, comms_max, 44);
NCCL_GOLDEN_AT(nccl_net_properties_v8_t, recvs_max, 48);
NCCL_GOLDEN_AT(nccl_net_properties_v8_t, device_type, 52);
NCCL_GOLDEN_AT(nccl_net_properties_v8_t, device_version, 56);

typedef struct nccl_net_v8 {
  const char* name;
  nccl_init_v6_fn init;
  nccl_devices_fn devices;
  int32_t (*get_properties)(int device, nccl_net_properties_v8_t* properties);
  nccl_listen_v6_fn listen;
  nccl_connect_v7_fn connect;
  nccl_accept_v7_fn accept;
  nccl_register_v8_fn register_memory;
  nccl_register_dmabuf_fn register_dmabuf;
  nccl_deregister_fn deregister;
  nccl_isend_v6_fn isend;
  nccl_irecv_v6_fn irecv;
  nccl_iflush_fn iflush;
  nccl_test_fn test;
  nccl_close_fn close_send;
  nccl_close_fn close_recv;
  nccl_close_fn close_listen;
  nccl_device_memory_fn device_memory;
  nccl_irecv_consumed_fn irecv_consumed;
} nccl_net_v8_t;
NCCL_GOLDEN_SIZE(nccl_net_v8_t, 152);
NCCL_GOLDEN_AT(nccl_net_v8_t, connect, 8 * 5);
NCCL_GOLDEN_AT(nccl_net_v8_t, register_memory, 8 * 7);
NCCL_GOLDEN_AT(nccl_net_v8_t, isend, 8 * 10);
NCCL_GOLDEN_AT(nccl_net_v8_t, test, 8 * 13);
NCCL_GOLDEN_AT(nccl_net_v8_t, close_listen, 8 * 16);
NCCL_GOLDEN_AT(nccl_net_v8_t, irecv_consumed, 8 * 18);

#ifdef __cplusplus
}
#endif
