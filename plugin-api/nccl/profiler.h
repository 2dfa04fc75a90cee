/* SPDX-License-Identifier: Apache-2.0
 *
 * NCCL's profiler plugin ABI: v4 (NCCL 2.27), v5 (2.28.3), v6 (2.29.2) and v7 (2.31). A library
 * exports a data symbol `ncclProfiler_vN`, a table of six pointers. Names are Plexus's, layouts are
 * NCCL's. Results are int32_t with the numbers of PLEXUS_OK .. PLEXUS_TIMEOUT (plexus_plugin.h).
 */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

#include "plugin-api/nccl/net_common.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Kinds of event, one bit each: the activation mask and the `type` of a descriptor. */
#define NCCL_PROFILE_GROUP 0x1
#define NCCL_PROFILE_COLL 0x2
#define NCCL_PROFILE_P2P 0x4
#define NCCL_PROFILE_PROXY_OP 0x8
#define NCCL_PROFILE_PROXY_STEP 0x10
#define NCCL_PROFILE_PROXY_CTRL 0x20
#define NCCL_PROFILE_KERNEL_CHANNEL 0x40
#define NCCL_PROFILE_NET_PLUGIN 0x80
#define NCCL_PROFILE_GROUP_API 0x100 /* this one and the next: since v5 */
#define NCCL_PROFILE_COLL_API 0x200
#define NCCL_PROFILE_P2P_API 0x400
#define NCCL_PROFILE_KERNEL_LAUNCH 0x800
#define NCCL_PROFILE_CE_COLL 0x1000 /* this one and the next: since v6 */
#define NCCL_PROFILE_CE_SYNC 0x2000
#define NCCL_PROFILE_CE_BATCH 0x4000
#define NCCL_PROFILE_KERNEL_PHASE 0x8000 /* since v7; of symmetric kernels, which no rank has */

/* States of an event, for record_state. */
#define NCCL_PROFILE_SEND_GPU_WAIT 8        /* the slot is not filled yet */
#define NCCL_PROFILE_SEND_WAIT 9            /* passed to the network */
#define NCCL_PROFILE_RECV_WAIT 10           /* nothing has arrived yet */
#define NCCL_PROFILE_RECV_FLUSH_WAIT 11     /* arrived, being made visible */
#define NCCL_PROFILE_RECV_GPU_WAIT 12       /* not removed from the slot yet */
#define NCCL_PROFILE_OP_IN_PROGRESS 19      /* the first step of a proxy op moves */
#define NCCL_PROFILE_SEND_PEER_WAIT 20      /* filled, waiting for the network */
#define NCCL_PROFILE_KERNEL_CHANNEL_STOP 22 /* with the GPU's clock */
#define NCCL_PROFILE_GROUP_START_DONE 23    /* ncclGroupStart is over */
#define NCCL_PROFILE_GROUP_END_BEGIN 24     /* ncclGroupEnd begins */

/* ---- descriptions of events; the type selects one ---- */

typedef struct nccl_profile_group_api {
  bool graph_captured;
  int depth;
} nccl_profile_group_api_t;

typedef struct nccl_profile_coll_api {
  const char* function; /* "AllReduce" */
  size_t count;
  const char* datatype; /* "ncclFloat32" */
  int root;
  void* stream;
  bool graph_captured;
} nccl_profile_coll_api_t;

typedef struct nccl_profile_p2p_api {
  const char* function; /* "Send", "Recv" */
  size_t count;
  const char* datatype;
  void* stream;
  bool graph_captured;
} nccl_profile_p2p_api_t;

typedef struct nccl_profile_kernel_launch {
  void* stream;
} nccl_profile_kernel_launch_t;

typedef struct nccl_profile_coll_v4 {
  uint64_t sequence;
  const char* function;
  const void* send_buffer;
  void* recv_buffer;
  size_t count;
  int root;
  const char* datatype;
  uint8_t channels;
  uint8_t warps;
  const char* algorithm; /* "RING" */
  const char* protocol;  /* "SIMPLE" */
} nccl_profile_coll_v4_t;

typedef struct nccl_profile_coll_v5 {
  nccl_profile_coll_v4_t v4;
  void* parent_group; /* the group's event; the parent object is the API event */
} nccl_profile_coll_v5_t;

typedef struct nccl_profile_p2p_v4 {
  const char* function;
  void* buffer;
  const char* datatype;
  size_t count;
  int peer;
  uint8_t channels;
} nccl_profile_p2p_v4_t;

typedef struct nccl_profile_p2p_v5 {
  const char* function;
  void* buffer;
  const char* datatype;
  size_t count;
  int peer;
  uint8_t channels;
  void* parent_group;
} nccl_profile_p2p_v5_t;

typedef struct nccl_profile_proxy_op {
  pid_t pid;
  uint8_t channel;
  int peer;
  int steps;
  int chunk_bytes;
  int is_send;
} nccl_profile_proxy_op_t;

typedef struct nccl_profile_proxy_step {
  int step;
} nccl_profile_proxy_step_t;

typedef struct nccl_profile_kernel_channel {
  uint8_t channel;
  uint64_t timer; /* of the GPU, ns */
} nccl_profile_kernel_channel_t;

typedef struct nccl_profile_net_plugin {
  int64_t id;
  void* data;
} nccl_profile_net_plugin_t;

/* Size of v6's union, whose largest member is an event that host ranks do not have. */
#define NCCL_PROFILE_UNION_BYTES_V6 96

typedef struct nccl_profile_event_v4 {
  uint8_t type;
  void* parent;
  int rank;
  union {
    nccl_profile_coll_v4_t coll;
    nccl_profile_p2p_v4_t p2p;
    nccl_profile_proxy_op_t proxy_op;
    nccl_profile_proxy_step_t proxy_step;
    nccl_profile_kernel_channel_t kernel_channel;
    nccl_profile_net_plugin_t net_plugin;
  } is;
} nccl_profile_event_v4_t;

typedef struct nccl_profile_event_v5 {
  uint64_t type;
  void* parent;
  int rank;
  union {
    nccl_profile_group_api_t group_api;
    nccl_profile_coll_api_t coll_api;
    nccl_profile_p2p_api_t p2p_api;
    nccl_profile_kernel_launch_t kernel_launch;
    nccl_profile_coll_v5_t coll;
    nccl_profile_p2p_v5_t p2p;
    nccl_profile_proxy_op_t proxy_op;
    nccl_profile_proxy_step_t proxy_step;
    nccl_profile_kernel_channel_t kernel_channel;
    nccl_profile_net_plugin_t net_plugin;
    char longest_of_v6[NCCL_PROFILE_UNION_BYTES_V6]; /* in v5 the coll is the longest */
  } is;
} nccl_profile_event_v5_t;

/* v6 appends kinds of event to v5's; common members have the same offsets. */
typedef nccl_profile_event_v5_t nccl_profile_event_v6_t;

/* What v7 appends to v5's descriptions: the user's tag of the call, and which kernel serves it. */
typedef struct nccl_profile_coll_v7 {
  nccl_profile_coll_v5_t v5;
  const char* kernel_variant; /* may be null */
  bool is_symmetric;
  uint64_t user_tag;
} nccl_profile_coll_v7_t;

typedef struct nccl_profile_p2p_v7 {
  nccl_profile_p2p_v5_t v5;
  uint64_t user_tag;
} nccl_profile_p2p_v7_t;

typedef struct nccl_profile_coll_api_v7 {
  nccl_profile_coll_api_t v5;
  uint64_t user_tag;
} nccl_profile_coll_api_v7_t;

typedef struct nccl_profile_p2p_api_v7 {
  nccl_profile_p2p_api_t v5;
  uint64_t user_tag;
} nccl_profile_p2p_api_v7_t;

typedef struct nccl_profile_event_v7 {
  uint64_t type;
  void* parent;
  int rank;
  union {
    nccl_profile_group_api_t group_api;
    nccl_profile_coll_api_v7_t coll_api;
    nccl_profile_p2p_api_v7_t p2p_api;
    nccl_profile_kernel_launch_t kernel_launch;
    nccl_profile_coll_v7_t coll;
    nccl_profile_p2p_v7_t p2p;
    nccl_profile_proxy_op_t proxy_op;
    nccl_profile_proxy_step_t proxy_step;
    nccl_profile_kernel_channel_t kernel_channel;
    nccl_profile_net_plugin_t net_plugin;
  } is;
} nccl_profile_event_v7_t;

typedef union nccl_profile_state {
  size_t transfer_bytes; /* of a proxy step */
  int appended_ops;
  void* net_plugin_data;
  uint64_t kernel_timer;
} nccl_profile_state_t;

NCCL_GOLDEN_AT(nccl_profile_event_v4_t, parent, 8);
NCCL_GOLDEN_AT(nccl_profile_event_v4_t, rank, 16);
NCCL_GOLDEN_AT(nccl_profile_event_v4_t, is, 24);
NCCL_GOLDEN_SIZE(nccl_profile_event_v4_t, 104);
NCCL_GOLDEN_AT(nccl_profile_event_v5_t, parent, 8);
NCCL_GOLDEN_AT(nccl_profile_event_v5_t, rank, 16);
NCCL_GOLDEN_AT(nccl_profile_event_v5_t, is, 24);
NCCL_GOLDEN_SIZE(nccl_profile_event_v5_t, 120);
NCCL_GOLDEN_AT(nccl_profile_coll_v4_t, datatype, 48);
NCCL_GOLDEN_AT(nccl_profile_coll_v4_t, algorithm, 64);
NCCL_GOLDEN_SIZE(nccl_profile_coll_v4_t, 80);
NCCL_GOLDEN_SIZE(nccl_profile_coll_v5_t, 88);
NCCL_GOLDEN_AT(nccl_profile_p2p_v4_t, channels, 36);
NCCL_GOLDEN_AT(nccl_profile_p2p_v5_t, parent_group, 40);
NCCL_GOLDEN_AT(nccl_profile_proxy_op_t, peer, 8);
NCCL_GOLDEN_SIZE(nccl_profile_proxy_op_t, 24);
NCCL_GOLDEN_AT(nccl_profile_coll_api_t, stream, 32);
NCCL_GOLDEN_SIZE(nccl_profile_coll_api_t, 48);
NCCL_GOLDEN_SIZE(nccl_profile_p2p_api_t, 40);
NCCL_GOLDEN_SIZE(nccl_profile_state_t, 8);
NCCL_GOLDEN_AT(nccl_profile_event_v7_t, is, 24);
NCCL_GOLDEN_SIZE(nccl_profile_event_v7_t, 136);
NCCL_GOLDEN_AT(nccl_profile_coll_v7_t, kernel_variant, 88);
NCCL_GOLDEN_AT(nccl_profile_coll_v7_t, is_symmetric, 96);
NCCL_GOLDEN_AT(nccl_profile_coll_v7_t, user_tag, 104);
NCCL_GOLDEN_AT(nccl_profile_p2p_v7_t, user_tag, 48);
NCCL_GOLDEN_AT(nccl_profile_coll_api_v7_t, user_tag, 48);
NCCL_GOLDEN_AT(nccl_profile_p2p_api_v7_t, user_tag, 40);

/* ---- the tables ---- */

typedef int32_t (*nccl_profile_stop_fn)(void* event);
typedef int32_t (*nccl_profile_record_fn)(void* event, int state, nccl_profile_state_t* what);
typedef int32_t (*nccl_profile_finalize_fn)(void* context);
typedef int32_t (*nccl_profile_init_v5_fn)(void** context,
                                           uint64_t comm_id,
                                           int* mask,
                                           const char* comm_name,
                                           int nnodes,
                                           int nranks,
                                           int rank,
                                           nccl_log_fn log);

typedef struct nccl_profiler_v4 {
  const char* name;
  int32_t (*init)(void** context,
                  int* mask,
                  const char* comm_name,
                  uint64_t comm_id,
                  int nnodes,
                  int nranks,
                  int rank,
                  nccl_log_fn log);
  int32_t (*start)(void* context, void** event, nccl_profile_event_v4_t* what);
  nccl_profile_stop_fn stop;
  nccl_profile_record_fn record_state;
  nccl_profile_finalize_fn finalize;
} nccl_profiler_v4_t;
NCCL_GOLDEN_SIZE(nccl_profiler_v4_t, 48);

typedef struct nccl_profiler_v5 {
  const char* name;
  nccl_profile_init_v5_fn init;
  int32_t (*start)(void* context, void** event, nccl_profile_event_v5_t* what);
  nccl_profile_stop_fn stop;
  nccl_profile_record_fn record_state;
  nccl_profile_finalize_fn finalize;
} nccl_profiler_v5_t;
NCCL_GOLDEN_SIZE(nccl_profiler_v5_t, 48);

typedef nccl_profiler_v5_t nccl_profiler_v6_t;

typedef struct nccl_profiler_v7 {
  const char* name;
  nccl_profile_init_v5_fn init;
  int32_t (*start)(void* context, void** event, nccl_profile_event_v7_t* what);
  nccl_profile_stop_fn stop;
  nccl_profile_record_fn record_state;
  nccl_profile_finalize_fn finalize;
} nccl_profiler_v7_t;
NCCL_GOLDEN_SIZE(nccl_profiler_v7_t, 48);

#ifdef __cplusplus
}
#endif
