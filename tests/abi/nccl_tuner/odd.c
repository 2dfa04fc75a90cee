/* SPDX-License-Identifier: Apache-2.0
 *
 * Tuner libraries that a host must refuse, one per definition.
 */
#include <stdint.h>
#define EXPORT __attribute__((visibility("default")))

#if defined(ODD_TOO_OLD) /* no context, no table: only NCCL 2.19 and 2.20 took it */
extern EXPORT const uint64_t ncclTunerPlugin_v1[4];
EXPORT const uint64_t ncclTunerPlugin_v1[4] = {1};
#elif defined(ODD_TOO_SMALL) /* v6 has five entries */
extern EXPORT const uint64_t ncclTunerPlugin_v6[4];
EXPORT const uint64_t ncclTunerPlugin_v6[4] = {1};
#elif defined(ODD_EMPTY_TABLE)
extern EXPORT const uint64_t ncclTunerPlugin_v3[4];
EXPORT const uint64_t ncclTunerPlugin_v3[4] = {0};
#endif
