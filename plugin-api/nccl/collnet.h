/* SPDX-License-Identifier: Apache-2.0
 *
 * NCCL's collnet plugin ABI (ncclCollNetPlugin_v6 .. v12): networks that reduce. A library may have
 * any version of it, independent of the version of its net plugin. Properties are those of the net
 * ABI of the same version. Types and operations are ncclDataType_t's and ncclRedOp_t's numbers.
 *
 * v11 exists twice, as for the net ABI: in the cross-datacenter branch it has v10's entries plus
 * another last one. Both tables are 152 bytes long.
 */
#pragma once

#include "plugin-api/nccl/net_common.h"
#include "plugin-api/nccl/net_v10.h"
#include "plugin-api/nccl/net_v11.h"
#include "plugin-api/nccl/net_v11_cross_dc.h"
#include "plugin-api/nccl/net_v12.h"
#include "plugin-api/nccl/net_v6.h"
#include "plugin-api/nccl/net_v7.h"
#include "plugin-api/nccl/net_v8.h"
#include "plugin-api/nccl/net_v9.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct nccl_collnet_part nccl_collnet_part_t; /* of a gather; Plexus does not use it */

typedef int32_t (*nccl_collnet_init_v11_fn)(void** context, uint64_t comm_id, nccl_log_fn log);
typedef int32_t (*nccl_collnet_connect_fn)(
    void* handles[], int members, int member, void* listen, void** group);
typedef int32_t (*nccl_collnet_support_fn)(int type, int op, int* supported);
typedef int32_t (*nccl_collnet_iallreduce_v6_fn)(void* group,
                                                 void* send,
                                                 void* recv,
                                                 int count,
                                                 int type,
                                                 int op,
                                                 void* send_memory,
                                                 void* recv_memory,
                                                 void** request);
typedef int32_t (*nccl_collnet_iallreduce_v9_fn)(void* group,
                                                 void* send,
                                                 void* recv,
                                                 size_t count,
                                                 int type,
                                                 int op,
                                                 void* send_memory,
                                                 void* recv_memory,
                                                 void** request);
typedef int32_t (*nccl_collnet_iallgather_fn)(void* group,
                                              void* send,
                                              int parts,
                                              nccl_collnet_part_t* recv,
                                              size_t rank_bytes,
                                              size_t window_offset,
                                              size_t window_bytes,
                                              void* send_memory,
                                              void** request);
typedef int32_t (*nccl_collnet_ireducescatter_fn)(void* group,
                                                  int parts,
                                                  nccl_collnet_part_t* send,
                                                  void* recv,
                                                  size_t rank_bytes,
                                                  size_t window_offset,
                                                  size_t window_bytes,
                                                  int type,
                                                  int op,
                                                  void* recv_memory,
                                                  void** request);
typedef int32_t (*nccl_collnet_iflush_fn)(
    void* group, void* data, int size, void* memory, void** request);

/* The entries from reduce_support to close_listen, of v6 and v7, v8, and v9 on. */
#define NCCL_COLLNET_ENTRIES_V6(register_fn) \
  nccl_collnet_connect_fn connect;           \
  nccl_collnet_support_fn reduce_support;    \
  register_fn register_memory;               \
  nccl_register_dmabuf_fn register_dmabuf;   \
  nccl_deregister_fn deregister;             \
  nccl_collnet_iallreduce_v6_fn iallreduce;  \
  nccl_collnet_iflush_fn iflush;             \
  nccl_test_fn test;                         \
  nccl_close_fn close_group;                 \
  nccl_close_fn close_listen
#define NCCL_COLLNET_ENTRIES_V8(iallreduce_fn)   \
  nccl_collnet_connect_fn connect;               \
  nccl_collnet_support_fn reduce_support;        \
  nccl_register_v8_fn register_memory;           \
  nccl_register_dmabuf_fn register_dmabuf;       \
  nccl_deregister_fn deregister;                 \
  iallreduce_fn iallreduce;                      \
  nccl_collnet_iallgather_fn iallgather;         \
  nccl_collnet_ireducescatter_fn ireducescatter; \
  nccl_collnet_iflush_fn iflush;                 \
  nccl_test_fn test;                             \
  nccl_close_fn close_group;                     \
  nccl_close_fn close_listen
#define NCCL_COLLNET_HEAD(version, init_fn, listen_fn)                                  \
  const char* name;                                                                     \
  init_fn init;                                                                         \
  nccl_devices_fn devices;                                                              \
  int32_t (*get_properties)(int device, nccl_net_properties_##version##_t* properties); \
  listen_fn listen

typedef struct nccl_collnet_v6 {
  NCCL_COLLNET_HEAD(v6, nccl_init_v6_fn, nccl_listen_v6_fn);
  NCCL_COLLNET_ENTRIES_V6(nccl_register_v6_fn);
} nccl_collnet_v6_t;
NCCL_GOLDEN_SIZE(nccl_collnet_v6_t, 120);
NCCL_GOLDEN_AT(nccl_collnet_v6_t, iallreduce, 8 * 10);
NCCL_GOLDEN_AT(nccl_collnet_v6_t, test, 8 * 12);

typedef struct nccl_collnet_v7 {
  NCCL_COLLNET_HEAD(v7, nccl_init_v6_fn, nccl_listen_v6_fn);
  NCCL_COLLNET_ENTRIES_V6(nccl_register_v6_fn);
} nccl_collnet_v7_t;
NCCL_GOLDEN_SIZE(nccl_collnet_v7_t, 120);

typedef struct nccl_collnet_v8 {
  NCCL_COLLNET_HEAD(v8, nccl_init_v6_fn, nccl_listen_v6_fn);
  NCCL_COLLNET_ENTRIES_V8(nccl_collnet_iallreduce_v6_fn);
} nccl_collnet_v8_t;
NCCL_GOLDEN_SIZE(nccl_collnet_v8_t, 136);
NCCL_GOLDEN_AT(nccl_collnet_v8_t, iallgather, 8 * 11);
NCCL_GOLDEN_AT(nccl_collnet_v8_t, test, 8 * 14);

typedef struct nccl_collnet_v9 {
  NCCL_COLLNET_HEAD(v9, nccl_init_v6_fn, nccl_listen_v6_fn);
  NCCL_COLLNET_ENTRIES_V8(nccl_collnet_iallreduce_v9_fn);
  nccl_make_virtual_v9_fn make_virtual;
} nccl_collnet_v9_t;
NCCL_GOLDEN_SIZE(nccl_collnet_v9_t, 144);
NCCL_GOLDEN_AT(nccl_collnet_v9_t, close_listen, 8 * 16);

typedef struct nccl_collnet_v10 {
  NCCL_COLLNET_HEAD(v10, nccl_init_v6_fn, nccl_listen_v6_fn);
  NCCL_COLLNET_ENTRIES_V8(nccl_collnet_iallreduce_v9_fn);
  nccl_make_virtual_v9_fn make_virtual;
} nccl_collnet_v10_t;
NCCL_GOLDEN_SIZE(nccl_collnet_v10_t, 144);

typedef struct nccl_collnet_v11 {
  NCCL_COLLNET_HEAD(v11, nccl_collnet_init_v11_fn, nccl_listen_v11_fn);
  NCCL_COLLNET_ENTRIES_V8(nccl_collnet_iallreduce_v9_fn);
  nccl_make_virtual_v9_fn make_virtual;
  nccl_finalize_fn finalize;
} nccl_collnet_v11_t;
NCCL_GOLDEN_SIZE(nccl_collnet_v11_t, 152);
NCCL_GOLDEN_AT(nccl_collnet_v11_t, finalize, 8 * 18);

typedef struct nccl_collnet_v11_cross_dc {
  NCCL_COLLNET_HEAD(v11_cross_dc, nccl_init_v6_fn, nccl_listen_v6_fn);
  NCCL_COLLNET_ENTRIES_V8(nccl_collnet_iallreduce_v9_fn);
  nccl_make_virtual_v9_fn make_virtual;
  void (*net_path)(void);
} nccl_collnet_v11_cross_dc_t;
NCCL_GOLDEN_SIZE(nccl_collnet_v11_cross_dc_t, 152);

typedef struct nccl_collnet_v12 {
  NCCL_COLLNET_HEAD(v12, nccl_collnet_init_v11_fn, nccl_listen_v11_fn);
  NCCL_COLLNET_ENTRIES_V8(nccl_collnet_iallreduce_v9_fn);
  nccl_make_virtual_v12_fn make_virtual;
  nccl_finalize_fn finalize;
} nccl_collnet_v12_t;
NCCL_GOLDEN_SIZE(nccl_collnet_v12_t, 152);
NCCL_GOLDEN_AT(nccl_collnet_v12_t, finalize, 8 * 18);

#ifdef __cplusplus
}
#endif
