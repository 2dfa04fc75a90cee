/* SPDX-License-Identifier: Apache-2.0
 *
 * Collnet plugins: networks that reduce. One rank of each host contributes a buffer, the network (a
 * switch, a server) combines them, and each of these ranks gets the result. C99, no dependencies,
 * append-only (see plugin-api/ABI.md).
 *
 * Life: `init` > `device_count`, `properties`, `reduce_support` > `listen` on every member, whose
 * 128-byte handles the host sends to all members > `connect` with all of them, which makes
 * the group > `register_memory` > `iallreduce`, `test` > `deregister` > `close_group`,
 * `close_listen` > `finalize`.
 *
 * Rules for every entry, unless it says otherwise: those of plexus_net.h (result codes, one
 * PLEXUS_LOG_ERROR line before a failing code, no blocking, no exceptions, no signals, threads, out
 * parameters). A group that failed stays failed: every later call fails as well, and none of
 * its buffers is accessed again.
 *
 *   plexus_collnet_request_t* request = NULL;
 *   int32_t code = ops->iallreduce(group, &reduction, &request);
 *   while (code == PLEXUS_OK && (code = ops->test(request)) == PLEXUS_AGAIN) {
 *     code = PLEXUS_OK;
 *   }
 */
#pragma once

#include "plexus_net.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Element types and operations, an int32_t wherever they cross. The numbers are ncclDataType_t's
 * and ncclRedOp_t's. */
#define PLEXUS_TYPE_INT8 0
#define PLEXUS_TYPE_UINT8 1
#define PLEXUS_TYPE_INT32 2
#define PLEXUS_TYPE_UINT32 3
#define PLEXUS_TYPE_INT64 4
#define PLEXUS_TYPE_UINT64 5
#define PLEXUS_TYPE_FLOAT16 6
#define PLEXUS_TYPE_FLOAT32 7
#define PLEXUS_TYPE_FLOAT64 8
#define PLEXUS_TYPE_BFLOAT16 9
#define PLEXUS_TYPE_FLOAT8E4M3 10
#define PLEXUS_TYPE_FLOAT8E5M2 11
#define PLEXUS_REDUCE_SUM 0
#define PLEXUS_REDUCE_PROD 1
#define PLEXUS_REDUCE_MAX 2
#define PLEXUS_REDUCE_MIN 3

/* Maximum and minimum of two elements, as ranks and networks have to make them: of floats a NaN is
 * dropped, and stays only where both are; of equal ones, as zeros of either sign are, it is `b`.
 * Evaluate `a` and `b` more than once. */
#define PLEXUS_LARGER_OF(a, b) ((a) > (b) || (b) != (b) ? (a) : (b))
#define PLEXUS_SMALLER_OF(a, b) ((a) < (b) || (b) != (b) ? (a) : (b))

/* Handles, defined by the plugin. The comments name the entries that make and end each. */
typedef struct plexus_collnet_context plexus_collnet_context_t; /* init .. finalize */
typedef struct plexus_collnet_listen plexus_collnet_listen_t;   /* listen .. close_listen */
typedef struct plexus_collnet_group plexus_collnet_group_t;     /* connect .. close_group */
typedef struct plexus_collnet_memory plexus_collnet_memory_t;   /* register_memory .. deregister */
typedef struct plexus_collnet_request plexus_collnet_request_t; /* iallreduce .. test says OK */

/* What the host passes to `init`; like plexus_net_config_t. */
typedef struct plexus_collnet_config {
  uint32_t struct_size;
  uint32_t reserved; /* 0 */
  uint64_t comm_id;  /* equal on all ranks of a communicator; for logs and names */
  plexus_log_fn log; /* never null */
  plexus_log_sink_t* log_sink;
  plexus_setting_fn setting; /* since 1.4, takes `log_sink`; null: use getenv */
} plexus_collnet_config_t;

/* A device: an access to the network. The host zeroes it before `properties`; fixed size. */
typedef struct plexus_collnet_properties {
  char name[64];              /* zero-terminated, not empty */
  uint64_t message_bytes_max; /* longest iallreduce, in 1 .. PLEXUS_NET_MESSAGE_BYTES_MAX */
  uint32_t pointer_support;   /* PLEXUS_MEMORY_* mask, never 0 */
  uint32_t requests_max;      /* requests in flight per group, at least 1 */
  uint32_t speed_mbit_per_s;  /* PLEXUS_UNKNOWN_U32 */
  uint32_t reserved[11];      /* 0 */
} plexus_collnet_properties_t;

/* One reduction: `count` elements from `send` are combined over the group into `recv`. The two may
 * be equal. The memory handles are those registered for the group; null if the plugin needs none.
 */
typedef struct plexus_collnet_reduction {
  const void* send;
  void* recv;
  uint64_t count;
  plexus_collnet_memory_t* send_memory;
  plexus_collnet_memory_t* recv_memory;
  int32_t type; /* PLEXUS_TYPE_* */
  int32_t op;   /* PLEXUS_REDUCE_* */
} plexus_collnet_reduction_t;

typedef struct plexus_collnet_ops { /* append only, see plugin-api/ABI.md */
  uint32_t struct_size;             /* sizeof(plexus_collnet_ops_t), as the plugin was compiled */
  uint32_t reserved;                /* 0 */

  /* Like those of plexus_net.h. */
  int32_t (*init)(const plexus_collnet_config_t* config, plexus_collnet_context_t** context);
  void (*finalize)(plexus_collnet_context_t* context);
  int32_t (*device_count)(plexus_collnet_context_t* context, uint32_t* count);
  int32_t (*properties)(plexus_collnet_context_t* context,
                        uint32_t device,
                        plexus_collnet_properties_t* properties);

  /* Whether the network can combine elements of `type` with `op`; `*supported`: 0 or 1. Constant
   * for the life of the context. A type or operation that the plugin does not know is not
   * supported. */
  int32_t (*reduce_support)(plexus_collnet_context_t* context,
                            int32_t type,
                            int32_t op,
                            uint32_t* supported);

  /* Prepares one member of a group on `device` and fills in its handle, which is secret. */
  int32_t (*listen)(plexus_collnet_context_t* context,
                    uint32_t device,
                    plexus_net_handle_t* handle,
                    plexus_collnet_listen_t** listen);

  /* Makes the group of the `members` handles; this one is number `member`. All members call it with
   * the same handles in the same order. First call with `*group` null; the plugin sets it at once
   * and goes on in later calls with the same arguments: PLEXUS_AGAIN until the group is
   * complete. The caller must close a `*group` that is not null, whatever the last result was. */
  int32_t (*connect)(plexus_collnet_listen_t* listen,
                     const plexus_net_handle_t* handles,
                     uint32_t members,
                     uint32_t member,
                     plexus_collnet_group_t** group);

  /* Registers memory with the group. `*memory` null: nothing to deregister. May take long.
   */
  int32_t (*register_memory)(plexus_collnet_group_t* group,
                             const plexus_net_region_t* region,
                             plexus_collnet_memory_t** memory);
  int32_t (*deregister)(plexus_collnet_memory_t* memory);

  /* Starts a reduction. Members start the same ones in the same order; the k-th of one member is
   * combined with the k-th of every other, and fails if they differ in count, type or op. The
   * result has the same bits on all members. PLEXUS_AGAIN: nothing was started. */
  int32_t (*iallreduce)(plexus_collnet_group_t* group,
                        const plexus_collnet_reduction_t* reduction,
                        plexus_collnet_request_t** request);

  /* Advances and tests: PLEXUS_AGAIN = not done. PLEXUS_OK or a failing code: the request is freed.
   */
  int32_t (*test)(plexus_collnet_request_t* request);

  /* Close, each once. Requests may be outstanding (abort): after the call their buffers are not
   * accessed again. May take up to a few milliseconds. The close of one member is no failure for
   * members that have all their results. */
  void (*close_group)(plexus_collnet_group_t* group);
  void (*close_listen)(plexus_collnet_listen_t* listen);
} plexus_collnet_ops_t;

/* A plugin's collnet descriptor. Static storage of the plugin. */
typedef struct plexus_collnet_plugin {
  uint32_t magic;       /* PLEXUS_PLUGIN_MAGIC */
  uint32_t struct_size; /* sizeof(plexus_collnet_plugin_t), as the plugin was compiled */
  uint32_t abi_major;   /* PLEXUS_ABI_MAJOR */
  uint32_t abi_minor;   /* PLEXUS_ABI_MINOR */
  const char* name;     /* [A-Za-z0-9_.-]+, shorter than PLEXUS_NAME_BYTES */
  const char* version;  /* printable, shorter than PLEXUS_NAME_BYTES */
  const plexus_collnet_ops_t* ops;
} plexus_collnet_plugin_t;

/* The exported function; plexus_plugin_query serves the other kinds. A library may have both. */
PLEXUS_PLUGIN_EXPORT const plexus_collnet_plugin_t* plexus_collnet_query(uint32_t host_abi);

#ifdef __cplusplus
}
#endif
