/* SPDX-License-Identifier: Apache-2.0
 *
 * NCCL's env plugin ABI: v1 (NCCL 2.28.7) and v2 (2.30.7). A library exports a data symbol
 * `ncclEnvPlugin_vN`. It replaces getenv for every NCCL setting. A returned string stays valid
 * until finalize, or until the same name is looked up again.
 */
#pragma once

#include "plugin-api/nccl/net_common.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct nccl_env_v1 {
  const char* name;
  int32_t (*init)(uint8_t major, uint8_t minor, uint8_t patch, const char* suffix);
  int32_t (*finalize)(void);
  const char* (*get)(const char* name); /* null: not set */
} nccl_env_v1_t;
NCCL_GOLDEN_SIZE(nccl_env_v1_t, 32);

typedef struct nccl_env_v2 {
  const char* name;
  int32_t (*init)(uint8_t major, uint8_t minor, uint8_t patch, const char* suffix, nccl_log_fn log);
  int32_t (*finalize)(void);
  const char* (*get)(const char* name);
} nccl_env_v2_t;
NCCL_GOLDEN_SIZE(nccl_env_v2_t, 32);

#ifdef __cplusplus
}
#endif
