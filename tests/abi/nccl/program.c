/* SPDX-License-Identifier: Apache-2.0
 * A program as a user of NCCL has it: two ranks of this process sum. Prints the sum. */
#include <nccl.h>
#include <stdio.h>

#define CHECK(call)                                                                               \
  do {                                                                                            \
    ncclResult_t result = (call);                                                                 \
    if (result != ncclSuccess) {                                                                  \
      fprintf(stderr, "%s: %s: %s\n", #call, ncclGetErrorString(result), ncclGetLastError(NULL)); \
      return 1;                                                                                   \
    }                                                                                             \
  } while (0)

int main(void) {
  ncclComm_t comms[2];
  float values[2] = {1, 2};
  int i;
  CHECK(ncclCommInitAll(comms, 2, NULL));
  CHECK(ncclGroupStart());
  for (i = 0; i < 2; ++i) {
    CHECK(ncclAllReduce(&values[i], &values[i], 1, ncclFloat, ncclSum, comms[i], NULL));
  }
  CHECK(ncclGroupEnd());
  for (i = 0; i < 2; ++i) {
    CHECK(ncclCommDestroy(comms[i]));
  }
  printf("%g %g\n", values[0], values[1]);
  return 0;
}
