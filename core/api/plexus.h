/* SPDX-License-Identifier: Apache-2.0
 *
 * What Plexus adds to nccl.h. C99 and C++. A program that a launcher started needs no more than
 *
 *   ncclUniqueId id;
 *   ncclComm_t comm;
 *   int rank, nranks;
 *   plexusGetUniqueIdFromEnvironment(&id, &nranks, &rank);
 *   ncclCommInitRank(&comm, nranks, id, rank);
 */
#ifndef PLEXUS_H_
#define PLEXUS_H_

#include <nccl.h>

#ifdef __cplusplus
extern "C" {
#endif

/* For a program whose processes a launcher starts, one for each rank, and that has nothing else to
 * pass a unique id on with: what ncclCommInitRank takes, on every rank. By the launcher's
 * variables: srun, mpirun of Open MPI and of MPICH, all others with PMI-1 or PMIx, torchrun; or
 * RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, set by hand. NCCL_COMM_ID, if set, says where
 * ranks meet. All ranks call it, once in their life; ncclCommSplit makes further communicators. May
 * block until rank 0 has called it, bounded by PLEXUS_BOOTSTRAP_TIMEOUT. A program that calls
 * MPI_Init sends an id of ncclGetUniqueId by MPI_Bcast instead. docs/running-on-a-cluster.md.
 * Threads: any. Errors: ncclInvalidUsage when no launcher has started this process, or its
 * variables are wrong or do not suffice. */
ncclResult_t plexusGetUniqueIdFromEnvironment(ncclUniqueId* id, int* nranks, int* rank);

/* Plexus's options for one call, in ncclCollConfig_t.ext, each at most once:
 *   ncclConfigExt_t option = {NULL, {PLEXUS_VENDOR_ID, PLEXUS_OPTION_DETERMINISTIC}, {1}};
 *   ncclCollConfig_t config = NCCL_COLLCONFIG_INITIALIZER;
 *   config.ext = &option;
 *   ncclAllReduceConfig(in, out, count, ncclFloat, ncclSum, comm, stream, &config);
 * An optionId that this release does not know has no effect (a line at INFO). */
#define PLEXUS_VENDOR_ID 0x6b1e93
/* val.i = 1: a reduction combines in rank order, as with PLEXUS_DETERMINISTIC=1; equal on all
 * ranks. 0: no effect. */
#define PLEXUS_OPTION_DETERMINISTIC 1
/* val.i = 1: what this rank sends of the call over networks carries checksums, as with
 * PLEXUS_NET_CHECKSUM=1; a changed message is ncclRemoteError where it arrives. 0: no effect. */
#define PLEXUS_OPTION_CHECKSUM 2
/* val.i = milliseconds, 1 or more: a call that waits for so long without anything moving ends with
 * ncclTimeout and the name of the rank that keeps it waiting, near or far: all ranks are asked what
 * they do, which takes up to two seconds more if one does not answer. If none is proved to be late,
 * outside the call or stopped, the error names those that this rank waits for. If this rank's part
 * of the call had not begun (no message sent or taken), it counts as not made: the communicator
 * stays usable, and the call can be made again. Else, and on a stream, the communicator has failed.
 * On host ranks. */
#define PLEXUS_OPTION_DEADLINE_MS 3
/* val.raw = a plexusExplain_t, read before the call returns. `told` gets a line of text before the
 * call runs (in a group: in ncclGroupEnd), in the thread that makes it: algorithm, protocol and
 * channels, the time that the tuner expects, and why others are not possible. It must not call this
 * library. The text is its own until it returns. */
#define PLEXUS_OPTION_EXPLAIN 4
typedef struct plexusExplain {
  void (*told)(void* user, const char* text);
  void* user;
} plexusExplain_t;

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

/* Events on these streams, with the meaning of CUDA's. An event stands for the work that was on a
 * stream when it was recorded (work of an open group comes with ncclGroupEnd); recorded again, it
 * stands for that, and who waits already goes on waiting for the earlier. It may be used with any
 * streams and threads of the process.
 * Threads: any. Errors: ncclInvalidArgument when event or stream is NULL or none of ours. */
typedef struct plexusEvent* plexusEvent_t;
ncclResult_t plexusEventCreate(plexusEvent_t* event);
/* Returns at once; streams and threads that wait for it go on waiting. */
ncclResult_t plexusEventDestroy(plexusEvent_t event);
ncclResult_t plexusEventRecord(plexusEvent_t event, cudaStream_t stream);
/* ncclSuccess: the work is done, or the event was never recorded. ncclInProgress: not yet. Else the
 * first failure of the stream up to there. */
ncclResult_t plexusEventQuery(plexusEvent_t event);
/* Blocks until the work is done and returns as plexusEventQuery. Bounded as
 * plexusStreamSynchronize. */
ncclResult_t plexusEventSynchronize(plexusEvent_t event);
/* Work put on stream from now on starts when the event's work, as recorded now, is done; returns at
 * once. Never recorded: no effect. A failure of that work is one of stream too. */
ncclResult_t plexusStreamWaitEvent(cudaStream_t stream, plexusEvent_t event);

/* Calls function(user) in the order of the stream, also when work before it failed. It runs in the
 * thread that moves the data of all streams, so it must be short, must not throw, and must call
 * nothing of this library that blocks: no calls on a NULL stream, no synchronize, init, split or
 * destroy. What it may call: query, record, wait-event, host functions, and calls on streams of
 * plexusStreamCreate. */
typedef void (*plexusHostFn_t)(void* user);
ncclResult_t plexusLaunchHostFunc(cudaStream_t stream, plexusHostFn_t function, void* user);

/* All-to-all with a count of its own for every pair of ranks. Counts and displacements are in
 * elements, arrays of [n] by rank; what rank i sends to j (sendcounts[j] at i) is what j expects
 * (recvcounts[i] at j), else all ranks get ncclInvalidUsage. The arrays are read before the call
 * returns. Not in place. In a group it does not mix with ncclSend and ncclRecv. */
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
/* Reduce-scatter with a count of its own for every rank: of the ranks' sendbuffs the elements from
 * senddispls[i] on are reduced, and the sendcounts[i] results end in recvbuff of rank i. The arrays
 * are equal on all ranks, recvcount is sendcounts[rank]. In place: recvbuff = sendbuff +
 * senddispls[rank]. */
ncclResult_t plexusReduceScatterV(const void* sendbuff,
                                  const size_t* sendcounts,
                                  const size_t* senddispls,
                                  void* recvbuff,
                                  size_t recvcount,
                                  ncclDataType_t datatype,
                                  ncclRedOp_t op,
                                  ncclComm_t comm,
                                  cudaStream_t stream);
/* Gather and scatter with a count of its own for every rank. recvbuff and the arrays of a gather,
 * sendbuff and those of a scatter are used on root only and may be NULL elsewhere; a count there
 * that a rank does not expect is ncclInvalidUsage on all ranks. In place, on root: sendbuff =
 * recvbuff + recvdispls[root], recvbuff = sendbuff + senddispls[root]. */
ncclResult_t plexusGatherV(const void* sendbuff,
                           size_t sendcount,
                           void* recvbuff,
                           const size_t* recvcounts,
                           const size_t* recvdispls,
                           ncclDataType_t datatype,
                           int root,
                           ncclComm_t comm,
                           cudaStream_t stream);
ncclResult_t plexusScatterV(const void* sendbuff,
                            const size_t* sendcounts,
                            const size_t* senddispls,
                            void* recvbuff,
                            size_t recvcount,
                            ncclDataType_t datatype,
                            int root,
                            ncclComm_t comm,
                            cudaStream_t stream);

/* The ranks of comm whose processes are known to have died or ended, ascending in ranks, which has
 * room for ncclCommCount, and their number in count. For ncclCommShrink's list once a call has
 * failed: shrink, and where that fails too, ask again and shrink without those who came to it. What
 * a process knows may differ from what others know by the time that a notice takes. A rank that
 * called ncclCommAbort and whose process lives is not among them. Threads: any. Errors:
 * ncclInvalidArgument when a pointer is NULL or comm is not ready yet, ncclInvalidUsage when it was
 * finalized. */
ncclResult_t plexusCommGoneRanks(ncclComm_t comm, int* ranks, int* count);

/* How the last call on comm was done: names as NCCL_ALGO and NCCL_PROTO take them ("" before the
 * first call; valid as long as comm), and the number of channels. Any pointer may be NULL. */
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
