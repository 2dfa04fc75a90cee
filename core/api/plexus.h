/* SPDX-License-Identifier: Apache-2.0
 *
 * What Plexus adds to nccl.h. C99 and C++.
 */
#ifndef PLEXUS_H_
#define PLEXUS_H_

#include <nccl.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A stream for host ranks: calls on it return at once and run in order, one after the other, in a
 * thread of the library. A communicator's calls run in the order they were issued, whatever their
 * streams. Buffers stay untouched until the stream is synchronized.
 * Threads: any. Errors: ncclInvalidArgument when stream is NULL or none of ours. */
ncclResult_t plexusStreamCreate(cudaStream_t* stream);
/* Waits for the stream's work, then frees it. */
ncclResult_t plexusStreamDestroy(cudaStream_t stream);
/* Blocks until all work issued so far is done; returns the first failure of the stream. Bounded by
 * ncclCommAbort on the communicators that are used on it. */
ncclResult_t plexusStreamSynchronize(cudaStream_t stream);
/* ncclSuccess: all done. ncclInProgress: not yet. Else the first failure. */
ncclResult_t plexusStreamQuery(cudaStream_t stream);

/* All-to-all with a count of its own for every pair of ranks. Counts and displacements are in
 * elements, arrays of [n] by rank; what rank i sends to j (sendcounts[j] at i) is what j expects
 * (recvcounts[i] at j), else all ranks get ncclInvalidUsage. The arrays are read before the call
 * returns. Not in place. Made of sends and receives: in a group with ncclSend and ncclRecv between the
 * same ranks, both sides must issue it at the same place among those. */
ncclResult_t plexusAllToAllV(const void* sendbuff,
                             const size_t* sendcounts,
                             const size_t* senddispls,
                             void* recvbuff,
                             const size_t* recvcounts,
                             const size_t* recvdispls,
                             ncclDataType_t datatype,
                             ncclComm_t comm,
                             cudaStream_t stream);
/* All-gather with a count of its own for every rank: rank i's sendcount elements end at
 * recvdispls[i] of every rank's recvbuff; recvcounts[i] is the same on all ranks. In place:
 * sendbuff = recvbuff + recvdispls[rank]. */
ncclResult_t plexusAllGatherV(const void* sendbuff,
                              size_t sendcount,
                              void* recvbuff,
                              const size_t* recvcounts,
                              const size_t* recvdispls,
                              ncclDataType_t datatype,
                              ncclComm_t comm,
                              cudaStream_t stream);

/* How the last call on comm was done: names as NCCL_ALGO and NCCL_PROTO take them (static strings,
 * "" before the first call), and the number of channels. Any pointer may be NULL. */
ncclResult_t plexusGetLastChoice(ncclComm_t comm,
                                 const char** algorithm,
                                 const char** protocol,
                                 int* channels);

/* "0.1.0", static. */
const char* plexusGetVersionString(void);

#ifdef __cplusplus
}
#endif

#endif /* PLEXUS_H_ */
