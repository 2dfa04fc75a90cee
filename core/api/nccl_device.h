/* SPDX-License-Identifier: Apache-2.0
 *
 * NCCL's device API, as far as programs that include this header need it to compile: the types and
 * the functions of the host. No rank serves kernels that
 * communicate. What kernels would call is there for plexus-nvcc only, and ends the program with a
 * sentence when it is called; where another compiler compiles a kernel that uses it, it is an
 * error.
 */
#ifndef NCCL_DEVICE_H_
#define NCCL_DEVICE_H_

#include <nccl.h>
#include <stdbool.h>

/* ---- types ---- */

typedef uint32_t ncclDevResourceHandle;
typedef uint32_t ncclDevResourceHandle_t;
typedef uint32_t ncclGinSignal_t;
typedef uint32_t ncclGinCounter_t;
typedef struct {
  uint64_t opaque[2];
} ncclGinRequest_t;

typedef struct ncclTeam {
  int nRanks, rank, stride;
} ncclTeam_t;
typedef struct ncclMultimemHandle {
  void* mcBasePtr;
} ncclMultimemHandle_t;
typedef struct ncclLsaBarrierHandle {
  ncclDevResourceHandle_t bufHandle;
  int nBarriers;
} ncclLsaBarrierHandle_t;
typedef struct ncclGinBarrierHandle {
  ncclGinSignal_t signal0;
} ncclGinBarrierHandle_t;
typedef struct ncclLLA2AHandle {
  ncclDevResourceHandle_t bufHandle;
  uint32_t nSlots;
} ncclLLA2AHandle_t;

/* Never made, so that its fields are those that programs name. */
typedef struct ncclDevComm {
  int rank, nRanks, lsaRank, lsaSize;
  ncclLsaBarrierHandle_t lsaBarrier;
  ncclGinBarrierHandle_t railGinBarrier, worldGinBarrier;
  ncclMultimemHandle_t lsaMultimem;
} ncclDevComm_t;

/* Of the fabrics that CFT is for, which no rank has: only their names. */
typedef uint64_t ncclCftLeId;
typedef int ncclCftTeamMode_t;

typedef enum {
  NCCL_GIN_CONNECTION_NONE,
  NCCL_GIN_CONNECTION_FULL,
  NCCL_GIN_CONNECTION_RAIL,
  NCCL_GIN_CONNECTION_CUSTOM_STRIDE
} ncclGinConnectionType_t;
typedef enum {
  NCCL_GIN_TYPE_NONE = 0,
  NCCL_GIN_TYPE_PROXY = 2,
  NCCL_GIN_TYPE_GDAKI = 3,
  NCCL_GIN_TYPE_GPI = 4,
  NCCL_GIN_TYPE_EFA_GDA = 5
} ncclGinType_t;

typedef struct ncclDevResourceRequirements {
  struct ncclDevResourceRequirements* next;
  size_t bufferSize, bufferAlign;
  ncclDevResourceHandle_t* outBufferHandle;
  int ginSignalCount, ginCounterCount;
  ncclGinSignal_t* outGinSignalStart;
  ncclGinCounter_t* outGinCounterStart;
} ncclDevResourceRequirements_t;
typedef struct ncclTeamRequirements {
  struct ncclTeamRequirements* next;
  ncclTeam_t team;
  bool multimem;
  ncclMultimemHandle_t* outMultimemHandle;
} ncclTeamRequirements_t;

typedef struct ncclDevCommRequirements {
  size_t size;
  unsigned int magic, version;
  ncclDevResourceRequirements_t* resourceRequirementsList;
  ncclTeamRequirements_t* teamRequirementsList;
  bool lsaMultimem;
  int barrierCount, lsaBarrierCount, railGinBarrierCount;
  int lsaLLA2ABlockCount, lsaLLA2ASlotCount;
  bool ginForceEnable;
  int ginContextCount, ginSignalCount, ginCounterCount;
  ncclGinConnectionType_t ginConnectionType;
  bool ginExclusiveContexts;
  int ginQueueDepth, ginTrafficClass, worldGinBarrierCount;
  bool ginStrongSignalsRequired, ginVaSignalsRequired;
} ncclDevCommRequirements_t;
#define NCCL_DEV_COMM_REQUIREMENTS_INITIALIZER                                                     \
  {                                                                                                \
    sizeof(ncclDevCommRequirements_t), NCCL_API_MAGIC, NCCL_VERSION_CODE, NULL, NULL, false, 0, 0, \
        0, 0, 0, false, 4, 0, 0, NCCL_GIN_CONNECTION_NONE, false, 0, NCCL_CONFIG_UNDEF_INT, 0,     \
        true, true                                                                                 \
  }

typedef struct ncclCommProperties {
  size_t size;
  unsigned int magic, version;
  int rank, nRanks, cudaDev, nvmlDev;
  bool deviceApiSupport, multimemSupport;
  ncclGinType_t ginType;
  int nLsaTeams;
  bool hostRmaSupport;
  ncclGinType_t railedGinType;
  uint64_t commHash; /* this one and the next: since 2.31 */
  int ginMinStride;
  ncclGinConnectionType_t ginConnectionType;
  bool ginSupport[64];
  size_t devCommRuntimeVersionSize;
} ncclCommProperties_t;
#ifdef __cplusplus
#define NCCL_COMM_PROPERTIES_INITIALIZER                                                        \
  {                                                                                             \
    sizeof(ncclCommProperties_t), NCCL_API_MAGIC, NCCL_VERSION_CODE, 0, 0, 0, 0, false, false,  \
        NCCL_GIN_TYPE_NONE, 0, false, NCCL_GIN_TYPE_NONE, 0, 0, NCCL_GIN_CONNECTION_NONE, {}, 0 \
  }
#else
#define NCCL_COMM_PROPERTIES_INITIALIZER \
  { sizeof(ncclCommProperties_t), NCCL_API_MAGIC, NCCL_VERSION_CODE }
#endif

/* ---- functions of the host ---- */

#ifdef __cplusplus
extern "C" {
#endif
/* Facts about comm, as far as the caller's release of the struct has them. */
ncclResult_t ncclCommQueryProperties(ncclComm_t comm, ncclCommProperties_t* properties);
/* All ranks; those of this rank's host; those with its place on the other hosts. Where hosts differ
 * in their number of ranks, or their ranks do not follow each other, a host's team is one rank.
 * After a failure: no ranks, or rank -1. */
ncclTeam_t ncclTeamWorld(ncclComm_t comm);
ncclTeam_t ncclTeamLsa(ncclComm_t comm);
ncclTeam_t ncclTeamRail(ncclComm_t comm);
int ncclTeamRankToWorld(ncclComm_t comm, ncclTeam_t team, int rank);
int ncclTeamRankToLsa(ncclComm_t comm, ncclTeam_t team, int rank);

/* Not available: each returns ncclInvalidUsage, or an empty team. */
ncclResult_t ncclDevCommCreate(ncclComm_t comm,
                               const ncclDevCommRequirements_t* requirements,
                               ncclDevComm_t* devComm);
ncclResult_t ncclDevCommDestroy(ncclComm_t comm, const ncclDevComm_t* devComm);
ncclResult_t ncclGetLsaMultimemDevicePointer(ncclWindow_t window, size_t offset, void** pointer);
ncclResult_t ncclGetMultimemDevicePointer(ncclWindow_t window,
                                          size_t offset,
                                          ncclMultimemHandle_t multimem,
                                          void** pointer);
ncclResult_t ncclGetLsaDevicePointer(ncclWindow_t window,
                                     size_t offset,
                                     int lsaRank,
                                     void** pointer);
ncclResult_t ncclGetPeerDevicePointer(ncclWindow_t window, size_t offset, int peer, void** pointer);
ncclResult_t ncclGetMultimemDeviceLeInfo(ncclWindow_t window,
                                         size_t offset,
                                         ncclCftLeId* id,
                                         size_t* idOffset);
ncclResult_t ncclGetCftDeviceLeInfo(ncclWindow_t window,
                                    size_t offset,
                                    int peerCft,
                                    ncclTeam_t team,
                                    ncclCftLeId* id,
                                    size_t* idOffset);
ncclResult_t ncclGetPeerDeviceLeInfo(
    ncclWindow_t window, size_t offset, int peerWorld, ncclCftLeId* id, size_t* idOffset);
ncclTeam_t ncclTeamCft(ncclComm_t comm, ncclCftTeamMode_t mode);
ncclTeam_t ncclTeamCftMultimem(ncclComm_t comm);
#ifdef __cplusplus
}
#endif

/* ---- what kernels would call ---- */

#if defined(__cplusplus) && defined(__CUDACC__)
#ifdef PLEXUS_NVCC
#include <stdio.h>
#include <stdlib.h>
#define PLEXUS_NO_DEVICE_API                                                                \
  {                                                                                         \
    fputs("NCCL's device API is not implemented: a kernel must not communicate\n", stderr); \
    abort();                                                                                \
  }
#else
#define PLEXUS_NO_DEVICE_API = delete
#endif

namespace cuda {
enum memory_order {
  memory_order_relaxed,
  memory_order_consume,
  memory_order_acquire,
  memory_order_release,
  memory_order_acq_rel,
  memory_order_seq_cst
};
}  // namespace cuda

struct ncclTeamTagWorld {};
struct ncclTeamTagLsa {};
struct ncclTeamTagRail {};
struct ncclCoopCta {};
struct ncclCoopWarp {};
struct ncclCoopThread {};
struct ncclGin_None {};
struct ncclGin_SignalInc {
  ncclGinSignal_t signal;
};
struct ncclGin_SignalAdd {
  ncclGinSignal_t signal;
  uint64_t value;
};
enum class ncclGinFenceLevel { None = 0, Relaxed = 0, Put = 1, Get = 2 };

inline ncclTeam ncclTeamWorld(const ncclDevComm&) PLEXUS_NO_DEVICE_API;
inline ncclTeam ncclTeamLsa(const ncclDevComm&) PLEXUS_NO_DEVICE_API;
inline ncclTeam ncclTeamRail(const ncclDevComm&) PLEXUS_NO_DEVICE_API;
inline void* ncclGetLocalPointer(ncclWindow_t, size_t) PLEXUS_NO_DEVICE_API;
inline void* ncclGetLsaPointer(ncclWindow_t, size_t, int) PLEXUS_NO_DEVICE_API;
inline void* ncclGetPeerPointer(ncclWindow_t, size_t, int) PLEXUS_NO_DEVICE_API;
inline void* ncclGetPeerPointer(ncclWindow_t, size_t, ncclTeam, int) PLEXUS_NO_DEVICE_API;
inline void* ncclGetMultimemPointer(ncclWindow_t, size_t, ncclMultimemHandle) PLEXUS_NO_DEVICE_API;
inline void* ncclGetLsaMultimemPointer(ncclWindow_t,
                                       size_t,
                                       const ncclDevComm&) PLEXUS_NO_DEVICE_API;

struct ncclGin {
  ncclGin(const ncclDevComm&, int) PLEXUS_NO_DEVICE_API;
  template <class... Arguments>
  void put(Arguments&&...) PLEXUS_NO_DEVICE_API;
  template <class... Arguments>
  void signal(Arguments&&...) PLEXUS_NO_DEVICE_API;
  template <class... Arguments>
  void waitSignal(Arguments&&...) PLEXUS_NO_DEVICE_API;
  template <class... Arguments>
  void flush(Arguments&&...) PLEXUS_NO_DEVICE_API;
  uint64_t readSignal(ncclGinSignal_t) PLEXUS_NO_DEVICE_API;
};

template <class Coop>
struct ncclBarrierSession {
  template <class... Arguments>
  ncclBarrierSession(Arguments&&...) PLEXUS_NO_DEVICE_API;
  template <class... Arguments>
  void sync(Arguments&&...) PLEXUS_NO_DEVICE_API;
};
template <class Coop>
struct ncclLsaBarrierSession {
  template <class... Arguments>
  ncclLsaBarrierSession(Arguments&&...) PLEXUS_NO_DEVICE_API;
  template <class... Arguments>
  void sync(Arguments&&...) PLEXUS_NO_DEVICE_API;
};
template <class Coop>
struct ncclGinBarrierSession {
  template <class... Arguments>
  ncclGinBarrierSession(Arguments&&...) PLEXUS_NO_DEVICE_API;
  template <class... Arguments>
  void sync(Arguments&&...) PLEXUS_NO_DEVICE_API;
};
#undef PLEXUS_NO_DEVICE_API
#endif

#endif /* NCCL_DEVICE_H_ */
