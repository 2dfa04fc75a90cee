/* SPDX-License-Identifier: Apache-2.0
 * plexus.h from C99: two ranks sum on streams of their own, a third stream waits for an event and
 * then calls a function, which prints the sums. */
#include <plexus.h>
#include <stdio.h>

#define CHECK(call)                                                                               \
  do {                                                                                            \
    ncclResult_t result = (call);                                                                 \
    if (result != ncclSuccess) {                                                                  \
      fprintf(stderr, "%s: %s: %s\n", #call, ncclGetErrorString(result), ncclGetLastError(NULL)); \
      return 1;                                                                                   \
    }                                                                                             \
  } while (0)

static void print(void* user) {
  const float* const values = user;
  printf("%g %g\n", values[0], values[1]);
}

int main(void) {
  ncclComm_t comms[2];
  cudaStream_t streams[3];
  plexusEvent_t events[2];
  float values[2] = {1, 2};
  int i;
  CHECK(ncclCommInitAll(comms, 2, NULL));
  CHECK(plexusStreamCreate(&streams[2]));
  for (i = 0; i < 2; ++i) {
    CHECK(plexusStreamCreate(&streams[i]));
    CHECK(plexusEventCreate(&events[i]));
    CHECK(ncclAllReduce(&values[i], &values[i], 1, ncclFloat, ncclSum, comms[i], streams[i]));
    CHECK(plexusEventRecord(events[i], streams[i]));
    CHECK(plexusStreamWaitEvent(streams[2], events[i]));
  }
  CHECK(plexusLaunchHostFunc(streams[2], print, values));
  CHECK(plexusStreamSynchronize(streams[2]));
  for (i = 0; i < 2; ++i) {
    CHECK(plexusEventSynchronize(events[i]));
    CHECK(plexusEventQuery(events[i]));
    CHECK(plexusEventDestroy(events[i]));
    CHECK(ncclCommDestroy(comms[i]));
  }
  for (i = 0; i < 3; ++i) {
    CHECK(plexusStreamDestroy(streams[i]));
  }
  return 0;
}
