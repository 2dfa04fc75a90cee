/* SPDX-License-Identifier: Apache-2.0
 *
 * Libraries that a host must refuse, one per definition: each for one reason, told in one sentence.
 */
#include <stdint.h>
#define EXPORT __attribute__((visibility("default")))

int odd_function(void);

#if defined(ODD_TOO_OLD) /* the only version is one that nobody knows any more */
extern const uint64_t ncclNetPlugin_v5[17];
EXPORT const uint64_t ncclNetPlugin_v5[17] = {1};
#elif defined(ODD_TOO_SMALL)   /* a table with fewer entries than its version has */
extern const uint64_t ncclNetPlugin_v8[17];
EXPORT const uint64_t ncclNetPlugin_v8[17] = {1};
#elif defined(ODD_EMPTY_TABLE) /* all entries are missing */
extern const uint64_t ncclNetPlugin_v9[20];
EXPORT const uint64_t ncclNetPlugin_v9[20] = {0};
#elif defined(ODD_NO_PLUGIN)   /* a library of something else */
EXPORT int odd_function(void) { return 1; }
#elif defined(ODD_GIN)         /* of another kind: networking that the GPU starts */
extern const uint64_t ncclGinPlugin_v13[20];
EXPORT const uint64_t ncclGinPlugin_v13[20] = {1};
#elif defined(ODD_PROVIDER)    /* what ODD_NEEDY needs; the test removes it */
EXPORT int odd_function(void) { return 2; }
#elif defined(ODD_NEEDY) || defined(ODD_UNRESOLVED) /* needs a library, or a symbol nobody has */
extern int (*const ncclNetPlugin_v8[19])(void);
EXPORT int (*const ncclNetPlugin_v8[19])(void) = {odd_function};
#endif
