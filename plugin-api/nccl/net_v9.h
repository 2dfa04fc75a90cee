/* SPDX-License-Identifier: Apache-2.0
 *
 * NCCL's net plugin ABI v9, NCCL 2.24: messages of size_t bytes, own limits, fused devices.
 */
#pragma once

#include "plugin-api/nccl/net_common.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct nccl_net_properties_v9 {
  const char* name;
  const char* pci_path; /* null: virtual device */
  uint64_t guid;
  int pointer_support; /* NCCL_MEMORY_* mask */
  int registration_is_global;
  int force_flush;
  int speed; /* Mbit/s */
  int port;
  float latency; /* us */
  int comms_max;
  int recvs_max;
  int device_type;
  int device_version;
  nccl_virtual_device_v9_t parts;
  size_t p2p_bytes_max;
  size_t coll_bytes_max;
} nccl_net_properties_v9_t;
NCCL_GOLDEN_SIZE(nccl_net_properties_v9_t, 104);
NCCL_GOLDEN_AT(nccl_net_properties_v9_t, force_flush, 32);
NCCL_GOLDEN_AT(nccl_net_properties_v9_t, speed, 36);
NCCL_GOLDEN_AT(nccl_net_properties_v9_t, port, 40);
NCCL_GOLDEN_AT(nccl_net_properties_v9_t, latency, 44);
NCCL_GOLDEN_AT(nccl_net_properties_v9_t, comms_max, 48);
NCCL_GOLDEN_AT(nccl_net_properties_v9_t, recvs_max, 52);
NCCL_GOLDEN_AT(nccl_net_properties_v9_t, device_type, 56);
NCCL_GOLDEN_AT(nccl_net_properties_v9_t, device_version, 60);
NCCL_GOLDEN_AT(nccl_net_properties_v9_t, parts, 64);
NCCL_GOLDEN_AT(nccl_net_properties_v9_t, p2p_bytes_max, 88);
NCCL_GOLDEN_AT(nccl_net_properties_v9_t, coll_bytes_max, 96);

typedef struct nccl_net_v9 {
  const char* name;
  nccl_init_v6_fn init;
  nccl_devices_fn devices;
  int32_t (*get_properties)(int device, nccl_net_properties_v9_t* properties);
  nccl_listen_v6_fn listen;
  nccl_connect_v7_fn connect;
  nccl_accept_v7_fn accept;
  nccl_register_v8_fn register_memory;
  nccl_register_dmabuf_fn register_dmabuf;
  nccl_deregister_fn deregister;
  nccl_isend_v9_fn isend;
  nccl_irecv_v9_fn irecv;
  nccl_iflush_fn iflush;
  nccl_test_fn test;
  nccl_close_fn close_send;
  nccl_close_fn close_recv;
  nccl_close_fn close_listen;
  nccl_device_memory_fn device_memory;
  nccl_irecv_consumed_fn irecv_consumed;
  nccl_make_virtual_v9_fn make_virtual;
} nccl_net_v9_t;
NCCL_GOLDEN_SIZE(nccl_net_v9_t, 160);
NCCL_GOLDEN_AT(nccl_net_v9_t, connect, 8 * 5);
NCCL_GOLDEN_AT(nccl_net_v9_t, register_memory, 8 * 7);
NCCL_GOLDEN_AT(nccl_net_v9_t, isend, 8 * 10);
NCCL_GOLDEN_AT(nccl_net_v9_t, test, 8 * 13);
NCCL_GOLDEN_AT(nccl_net_v9_t, close_listen, 8 * 16);
NCCL_GOLDEN_AT(nccl_net_v9_t, irecv_consumed, 8 * 18);
NCCL_GOLDEN_AT(nccl_net_v9_t, make_virtual, 8 * 19);

#ifdef __cplusplus
}
#endif
