/* SPDX-License-Identifier: Apache-2.0
 *
 * NCCL's net plugin ABI v11 of the cross-dc branch (2.26.2): v10 plus the reachability of
 * fabrics. Its symbol is also ncclNetPlugin_v11, so that only the symbol's size (168 bytes instead
 * of 176) distinguishes them.
 */
#pragma once

#include "plugin-api/nccl/net_common.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct nccl_net_properties_v11_cross_dc {
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
  uint64_t fabric_id;
} nccl_net_properties_v11_cross_dc_t;
NCCL_GOLDEN_SIZE(nccl_net_properties_v11_cross_dc_t, 112);
NCCL_GOLDEN_AT(nccl_net_properties_v11_cross_dc_t, force_flush, 32);
NCCL_GOLDEN_AT(nccl_net_properties_v11_cross_dc_t, speed, 36);
NCCL_GOLDEN_AT(nccl_net_properties_v11_cross_dc_t, recvs_max, 52);
NCCL_GOLDEN_AT(nccl_net_properties_v11_cross_dc_t, device_type, 56);
NCCL_GOLDEN_AT(nccl_net_properties_v11_cross_dc_t, parts, 64);
NCCL_GOLDEN_AT(nccl_net_properties_v11_cross_dc_t, p2p_bytes_max, 88);
NCCL_GOLDEN_AT(nccl_net_properties_v11_cross_dc_t, coll_bytes_max, 96);
NCCL_GOLDEN_AT(nccl_net_properties_v11_cross_dc_t, fabric_id, 104);

/* Location of a fabric as seen from another one. */
#define NCCL_PATH_SAME_DC 0
#define NCCL_PATH_OTHER_DC 1
#define NCCL_PATH_DISCONNECTED 2
typedef struct nccl_net_path {
  int level;
} nccl_net_path_t;
NCCL_GOLDEN_SIZE(nccl_net_path_t, 4);

typedef struct nccl_net_v11_cross_dc {
  const char* name;
  nccl_init_v10_fn init;
  nccl_devices_fn devices;
  int32_t (*get_properties)(int device, nccl_net_properties_v11_cross_dc_t* properties);
  nccl_listen_v6_fn listen;
  nccl_connect_v10_fn connect;
  nccl_accept_v7_fn accept;
  nccl_register_v8_fn register_memory;
  nccl_register_dmabuf_fn register_dmabuf;
  nccl_deregister_fn deregister;
  nccl_isend_v10_fn isend;
  nccl_irecv_v10_fn irecv;
  nccl_iflush_fn iflush;
  nccl_test_fn test;
  nccl_close_fn close_send;
  nccl_close_fn close_recv;
  nccl_close_fn close_listen;
  nccl_device_memory_fn device_memory;
  nccl_irecv_consumed_fn irecv_consumed;
  nccl_make_virtual_v9_fn make_virtual;
  int32_t (*net_path)(uint64_t source, uint64_t target, nccl_net_path_t* path);
} nccl_net_v11_cross_dc_t;
NCCL_GOLDEN_SIZE(nccl_net_v11_cross_dc_t, 168);
NCCL_GOLDEN_AT(nccl_net_v11_cross_dc_t, connect, 8 * 5);
NCCL_GOLDEN_AT(nccl_net_v11_cross_dc_t, register_memory, 8 * 7);
NCCL_GOLDEN_AT(nccl_net_v11_cross_dc_t, isend, 8 * 10);
NCCL_GOLDEN_AT(nccl_net_v11_cross_dc_t, test, 8 * 13);
NCCL_GOLDEN_AT(nccl_net_v11_cross_dc_t, close_listen, 8 * 16);
NCCL_GOLDEN_AT(nccl_net_v11_cross_dc_t, irecv_consumed, 8 * 18);
NCCL_GOLDEN_AT(nccl_net_v11_cross_dc_t, make_virtual, 8 * 19);
NCCL_GOLDEN_AT(nccl_net_v11_cross_dc_t, net_path, 8 * 20);

#ifdef __cplusplus
}
#endif
