/* SPDX-License-Identifier: Apache-2.0
 *
 * NCCL's log plugin ABI, v1 (after NCCL 2.32). A library exports the data symbol
 * `ncclLogPlugin_v1`, and is told of every line that NCCL logs. on_record runs in any thread, in
 * several at once; it must not block, and must not call NCCL.
 *
 *   static void on_record(void* ctx, const nccl_log_record_v1_t* record) { puts(record->message); }
 *   const nccl_log_v1_t ncclLogPlugin_v1 = {"mine", NULL, on_record, NULL};
 */
#pragma once

#include "plugin-api/nccl/net_common.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Its strings are valid until on_record returns. */
typedef struct nccl_log_record_v1 {
  int32_t level; /* as NCCL_DEBUG's: 1 version, 2 warn, 3 info */
  unsigned long subsystems;
  const char* file;
  const char* func; /* may be empty */
  int32_t line;
  int32_t code; /* of the error that a warning is about, else 0 */
  const char* format;
  const char* message; /* without what a line has before it */
  const char* host_name;
  int32_t pid;
  int32_t tid;
  int32_t cuda_device; /* -1: the host */
} nccl_log_record_v1_t;
NCCL_GOLDEN_SIZE(nccl_log_record_v1_t, 80);

typedef struct nccl_log_v1 {
  const char* name;
  int32_t (*init)(void** ctx); /* may be null */
  void (*on_record)(void* ctx, const nccl_log_record_v1_t* record);
  int32_t (*finalize)(void* ctx); /* may be null; Plexus does not call it */
} nccl_log_v1_t;
NCCL_GOLDEN_SIZE(nccl_log_v1_t, 32);

#ifdef __cplusplus
}
#endif
