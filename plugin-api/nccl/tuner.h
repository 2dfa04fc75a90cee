/* SPDX-License-Identifier: Apache-2.0
 *
 * NCCL's tuner plugin ABI, v2 (NCCL 2.21) to v6 (2.30). A library exports a data symbol
 * `ncclTunerPlugin_vN`, one of the tables below. Results are int32_t with the numbers of PLEXUS_OK
 * .. PLEXUS_TIMEOUT (plexus_plugin.h).
 *
 * The cost table is one block of `algorithms` x `protocols` floats, microseconds, although its type
 * says float**: entry (a, p) is block[a * protocols + p]; NCCL_TUNER_NOT_POSSIBLE: cannot be used.
 */
#pragma once

#include "plugin-api/nccl/net_common.h"

#ifdef __cplusplus
extern "C" {
#endif

#define NCCL_TUNER_TREE 0
#define NCCL_TUNER_RING 1
#define NCCL_TUNER_PAT 6 /* since NCCL 2.23; 2 to 5 need switches that reduce */
#define NCCL_TUNER_ALGORITHMS 7
#define NCCL_TUNER_LL 0
#define NCCL_TUNER_LL128 1
#define NCCL_TUNER_SIMPLE 2
#define NCCL_TUNER_PROTOCOLS 3
#define NCCL_TUNER_UNDEFINED (-1)
#define NCCL_TUNER_NOT_POSSIBLE (-1.0f)

/* The collectives that are tuned. */
#define NCCL_TUNER_BROADCAST 0
#define NCCL_TUNER_REDUCE 1
#define NCCL_TUNER_ALL_GATHER 2
#define NCCL_TUNER_REDUCE_SCATTER 3
#define NCCL_TUNER_ALL_REDUCE 4

/* Groups of ranks connected by a fast link of the host. */
typedef struct nccl_tuner_domains_v5 {
  int count;
  int ranks_min;
  int ranks_max;
} nccl_tuner_domains_v5_t;
NCCL_GOLDEN_SIZE(nccl_tuner_domains_v5_t, 12);

/* Numbers of NCCL's own model, which a tuner may read and change at init: microseconds and GB/s. By
 * hardware (fast link, PCI, network), generation of the accelerator, scale (1, 2, more nodes). */
typedef struct nccl_tuner_constants_v5 {
  double base_latency[NCCL_TUNER_ALGORITHMS][NCCL_TUNER_PROTOCOLS];
  double hardware_latency[3][NCCL_TUNER_ALGORITHMS][NCCL_TUNER_PROTOCOLS];
  double ll_bandwidth[4][3];
  double channel_ring_ll128_bandwidth[4][3];
  double channel_tree_ll128_bandwidth[4][3];
  double channel_tree_bandwidth[4][3];
  double channel_nvls_tree_bandwidth[4][3];
} nccl_tuner_constants_v5_t;
NCCL_GOLDEN_SIZE(nccl_tuner_constants_v5_t, 1152);
NCCL_GOLDEN_AT(nccl_tuner_constants_v5_t, hardware_latency, 168);
NCCL_GOLDEN_AT(nccl_tuner_constants_v5_t, ll_bandwidth, 672);
NCCL_GOLDEN_AT(nccl_tuner_constants_v5_t, channel_ring_ll128_bandwidth, 768);
NCCL_GOLDEN_AT(nccl_tuner_constants_v5_t, channel_tree_ll128_bandwidth, 864);
NCCL_GOLDEN_AT(nccl_tuner_constants_v5_t, channel_tree_bandwidth, 960);
NCCL_GOLDEN_AT(nccl_tuner_constants_v5_t, channel_nvls_tree_bandwidth, 1056);

typedef int32_t (*nccl_tuner_init_v2_fn)(size_t nranks,
                                         size_t nnodes,
                                         nccl_log_fn log,
                                         void** context);
typedef int32_t (*nccl_tuner_init_v5_fn)(void** context,
                                         uint64_t comm_id,
                                         size_t nranks,
                                         size_t nnodes,
                                         nccl_log_fn log,
                                         nccl_tuner_domains_v5_t* domains,
                                         nccl_tuner_constants_v5_t* constants);
/* Returns one pair of algorithm and protocol; *channels 0: no opinion. */
typedef int32_t (*nccl_tuner_info_v2_fn)(void* context,
                                         int collective,
                                         size_t size,
                                         int has_collnet,
                                         int has_nvls,
                                         int calls_in_group,
                                         int* algorithm,
                                         int* protocol,
                                         int* channels);
/* Returns its answer in the cost table. */
typedef int32_t (*nccl_tuner_info_v3_fn)(void* context,
                                         int collective,
                                         size_t size,
                                         int calls_in_group,
                                         float** costs,
                                         int algorithms,
                                         int protocols,
                                         int* channels);
typedef int32_t (*nccl_tuner_info_v4_fn)(void* context,
                                         int collective,
                                         size_t size,
                                         int calls_in_group,
                                         float** costs,
                                         int algorithms,
                                         int protocols,
                                         int is_registered,
                                         int* channels);
typedef int32_t (*nccl_tuner_chunk_v6_fn)(void* context,
                                          int collective,
                                          size_t size,
                                          int algorithm,
                                          int protocol,
                                          int channels,
                                          size_t* chunk_size);
typedef int32_t (*nccl_tuner_finalize_fn)(void* context);

typedef struct nccl_tuner_v2 {
  const char* name;
  nccl_tuner_init_v2_fn init;
  nccl_tuner_info_v2_fn info;
  nccl_tuner_finalize_fn finalize;
} nccl_tuner_v2_t;
NCCL_GOLDEN_SIZE(nccl_tuner_v2_t, 32);
NCCL_GOLDEN_AT(nccl_tuner_v2_t, info, 16);

typedef struct nccl_tuner_v3 {
  const char* name;
  nccl_tuner_init_v2_fn init;
  nccl_tuner_info_v3_fn info;
  nccl_tuner_finalize_fn finalize;
} nccl_tuner_v3_t;
NCCL_GOLDEN_SIZE(nccl_tuner_v3_t, 32);
NCCL_GOLDEN_AT(nccl_tuner_v3_t, info, 16);

typedef struct nccl_tuner_v4 {
  const char* name;
  nccl_tuner_init_v2_fn init;
  nccl_tuner_info_v4_fn info;
  nccl_tuner_finalize_fn finalize;
} nccl_tuner_v4_t;
NCCL_GOLDEN_SIZE(nccl_tuner_v4_t, 32);
NCCL_GOLDEN_AT(nccl_tuner_v4_t, info, 16);

typedef struct nccl_tuner_v5 {
  const char* name;
  nccl_tuner_init_v5_fn init;
  nccl_tuner_info_v4_fn info;
  nccl_tuner_finalize_fn finalize;
} nccl_tuner_v5_t;
NCCL_GOLDEN_SIZE(nccl_tuner_v5_t, 32);
NCCL_GOLDEN_AT(nccl_tuner_v5_t, finalize, 24);

typedef struct nccl_tuner_v6 {
  const char* name;
  nccl_tuner_init_v5_fn init;
  nccl_tuner_info_v4_fn info;
  nccl_tuner_finalize_fn finalize;
  nccl_tuner_chunk_v6_fn chunk; /* may be null */
} nccl_tuner_v6_t;
NCCL_GOLDEN_SIZE(nccl_tuner_v6_t, 40);
NCCL_GOLDEN_AT(nccl_tuner_v6_t, finalize, 24);
NCCL_GOLDEN_AT(nccl_tuner_v6_t, chunk, 32);

#ifdef __cplusplus
}
#endif
