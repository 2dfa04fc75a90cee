/* SPDX-License-Identifier: Apache-2.0
 * A program that srun, mpirun or torchrun starts, one process for each rank, and that needs no MPI.
 * Build: cc launched.c $(pkg-config --cflags --libs plexus) -o launched
 * Use:   srun -N2 -n4 ./launched
 * docs/running-on-a-cluster.md walks through it. */
#include <nccl.h>
#include <plexus.h>
#include <stdio.h>
#include <stdlib.h>

static void check(ncclResult_t result) {
  if (result == ncclSuccess) return;
  fprintf(stderr, "launched: %s\n", ncclGetLastError(NULL));
  exit(1);
}

int main(void) {
  ncclUniqueId id;
  ncclComm_t comm;
  int nranks, rank;
  check(plexusGetUniqueIdFromEnvironment(&id, &nranks, &rank));
  check(ncclCommInitRank(&comm, nranks, id, rank));
  float sum = (float)(rank + 1);
  check(ncclAllReduce(&sum, &sum, 1, ncclFloat, ncclSum, comm, NULL));
  printf("rank %d of %d: sum %g\n", rank, nranks, sum);
  check(ncclCommDestroy(comm));
  return 0;
}
