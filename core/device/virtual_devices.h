/* SPDX-License-Identifier: Apache-2.0
 *
 * How a library that stands for CUDA's runtime over host memory (integrations/cudart) and this one
 * meet: it tells what its devices and streams are, and ranks compute on the host. C, because the
 * two are libraries of their own; both are of one version, so nothing is promised between versions.
 */
#ifndef PLEXUS_VIRTUAL_DEVICES_H_
#define PLEXUS_VIRTUAL_DEVICES_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct CUstream_st;

/* Calls that a graph has taken down. */
typedef struct plexusCaptured {
  /* Makes them on `stream`; returns an ncclResult_t. */
  int (*issue)(struct plexusCaptured* self, struct CUstream_st* stream);
  void (*release)(struct plexusCaptured* self);
} plexusCaptured_t;

/* Memory of the devices, as a program may hand it to a call of a rank on `device`. */
typedef struct plexusMemoryFacts {
  const void* data; /* where the allocation begins */
  uint64_t size_bytes;
  int32_t device;
  int32_t is_reachable; /* by the rank's device */
} plexusMemoryFacts;

/* Threads: any, for each. None may call back before it returns, but for what says so. */
typedef struct plexusVirtualDevices {
  int (*count)(void);
  int (*current)(void); /* the calling thread's */
  /* The stream of plexusStreamCreate that stands for `stream` (NULL and the values that CUDA gives
   * a meaning, too) on `device`; NULL: there is none. */
  struct CUstream_st* (*find_stream)(struct CUstream_st* stream, int device);
  /* Work is about to be put on a stream that find_stream() gave: what CUDA orders before it comes
   * before it. May call plexusStreamWaitEvent. */
  void (*before_work)(struct CUstream_st* stream);
  /* Is what would be work on the stream taken down by a graph now? */
  int (*is_captured)(struct CUstream_st* stream);
  /* Hands the graph calls of such a stream, which it owns from now on. */
  void (*capture)(struct CUstream_st* stream, plexusCaptured_t* calls);
  /* 0: the address is in no memory that the program has from here or from ncclMemAlloc. */
  int (*find_memory)(const void* address, int device, plexusMemoryFacts* facts);
} plexusVirtualDevices;

/* To be called before the first communicator; `devices` stays for the life of the process. */
void plexusUseVirtualDevices(const plexusVirtualDevices* devices);

/* Work of the caller's own in the order of a stream: at its turn start(user, work) is called, by
 * the thread that moves the data of all streams, so it must be short. The stream goes on when
 * plexusWorkDone(work) was called, once, by any thread. Returns an ncclResult_t. */
typedef struct plexusWork plexusWork_t;
typedef void (*plexusStartWork_t)(void* user, plexusWork_t* work);
int plexusLaunchWork(struct CUstream_st* stream, plexusStartWork_t start, void* user);
void plexusWorkDone(plexusWork_t* work);

/* Whether all that is on the stream is done, failed or not; 1, too, when there is no such stream.
 */
int plexusStreamIsIdle(struct CUstream_st* stream);
/* Waits for that. */
void plexusStreamWaitIdle(struct CUstream_st* stream);

/* `function(user)` at its turn, by that thread; short. Not one of the program's own functions. */
int plexusRunInTurn(struct CUstream_st* stream, void (*function)(void*), void* user);

/* ncclMemAlloc and ncclMemFree without what PLEXUS_CHECK does. */
int plexusAllocateMemory(void** memory, uint64_t size_bytes);
int plexusFreeMemory(void* memory);

/* Is PLEXUS_CHECK 1? Only then the functions up to plexusKeepFreed are called. */
int plexusChecks(void);
typedef struct plexusUse {
  const void* data;
  uint64_t size_bytes;
  int writes;
} plexusUse;
/* `function` (CUDA's name) is about to put work on the stream that uses memory; NULL: it uses it
 * before it returns. */
void plexusNoteWork(const char* function,
                    struct CUstream_st* stream,
                    const plexusUse* uses,
                    int count);
/* Memory that the program gets. */
void plexusNoteNew(void* data, uint64_t size_bytes);
/* `function` frees memory, in the order of the stream or (NULL) now. Returns an ncclResult_t. */
int plexusNoteFree(const char* function,
                   struct CUstream_st* stream,
                   const void* data,
                   uint64_t size_bytes);
/* Keeps that from being used again: release(data, size_bytes) is called later. 0: not kept. */
int plexusKeepFreed(void* data, uint64_t size_bytes, void (*release)(void*, size_t));

/* Where other processes of this host find a piece of memory from ncclMemAlloc. */
typedef struct plexusMemoryPlace {
  uint64_t segment; /* 0: it cannot be shared */
  uint64_t segment_bytes;
  uint64_t offset;
  uint64_t owner;
  int32_t pid;
  int32_t fd;
} plexusMemoryPlace;
void plexusFindMemory(const void* address, plexusMemoryPlace* place);
/* Maps the segment; `memory` is its first byte. plexusUnmapMemory takes that. */
int plexusMapMemory(const plexusMemoryPlace* place, void** memory);
int plexusUnmapMemory(void* memory);

#ifdef __cplusplus
}
#endif

#endif /* PLEXUS_VIRTUAL_DEVICES_H_ */
