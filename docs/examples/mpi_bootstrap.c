/* SPDX-License-Identifier: Apache-2.0
 * A program of MPI that uses Plexus beside it: rank 0's unique id goes to the others by MPI_Bcast.
 * Build: mpicc mpi_bootstrap.c $(pkg-config --cflags --libs plexus) -o mpi_bootstrap
 * Use:   mpirun -np 4 ./mpi_bootstrap
 * docs/running-on-a-cluster.md walks through it. */
#include <mpi.h>
#include <nccl.h>
#include <stdio.h>

static void check(ncclResult_t result) {
  if (result == ncclSuccess) return;
  fprintf(stderr, "mpi_bootstrap: %s\n", ncclGetLastError(NULL));
  MPI_Abort(MPI_COMM_WORLD, 1);
}

int main(int argc, char** argv) {
  ncclUniqueId id;
  ncclComm_t comm;
  int nranks, rank;
  MPI_Init(&argc, &argv);
  MPI_Comm_size(MPI_COMM_WORLD, &nranks);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (rank == 0) check(ncclGetUniqueId(&id));
  MPI_Bcast(&id, sizeof id, MPI_BYTE, 0, MPI_COMM_WORLD);
  check(ncclCommInitRank(&comm, nranks, id, rank));
  float sum = (float)(rank + 1), of_mpi;
  MPI_Allreduce(&sum, &of_mpi, 1, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  check(ncclAllReduce(&sum, &sum, 1, ncclFloat, ncclSum, comm, NULL));
  printf("rank %d of %d: sum %g, MPI's %g\n", rank, nranks, sum, of_mpi);
  check(ncclCommDestroy(comm));
  MPI_Finalize();
  return sum == of_mpi ? 0 : 1;
}
