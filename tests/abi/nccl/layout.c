/* SPDX-License-Identifier: Apache-2.0
 * nccl.h has NCCL 2.32's numbers and layouts (LP64). Every line is checked by the compiler, as C99
 * and, through layout.cpp, as C++: this file compiles or the interface broke. */
#include <nccl.h>
#include <plexus.h>
#include <stddef.h>

#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)
#define CHECK(condition) typedef char JOIN(check_, __LINE__)[(condition) ? 1 : -1]
#define CHECK_OFFSET(type, field, offset) CHECK(offsetof(type, field) == (offset))

CHECK(sizeof(ncclUniqueId) == 128 && NCCL_UNIQUE_ID_BYTES == 128);
CHECK(NCCL_VERSION_CODE == 23203);
CHECK(NCCL_VERSION(2, 8, 4) == 2804 && NCCL_VERSION(2, 30, 7) == 23007);

CHECK(ncclSuccess == 0 && ncclUnhandledCudaError == 1 && ncclSystemError == 2 &&
      ncclInternalError == 3);
CHECK(ncclInvalidArgument == 4 && ncclInvalidUsage == 5 && ncclRemoteError == 6 &&
      ncclInProgress == 7);
CHECK(ncclTimeout == 8 && ncclNumResults == 9 && sizeof(ncclResult_t) == 4);

CHECK(ncclInt8 == 0 && ncclChar == 0 && ncclUint8 == 1 && ncclInt32 == 2 && ncclInt == 2 &&
      ncclUint32 == 3);
CHECK(ncclInt64 == 4 && ncclUint64 == 5 && ncclFloat16 == 6 && ncclHalf == 6 && ncclFloat32 == 7 &&
      ncclFloat == 7);
CHECK(ncclFloat64 == 8 && ncclDouble == 8 && ncclBfloat16 == 9 && ncclFloat8e4m3 == 10 &&
      ncclFloat8e5m2 == 11);
CHECK(ncclNumTypes == 12 && sizeof(ncclDataType_t) == 4);

CHECK(ncclSum == 0 && ncclProd == 1 && ncclMax == 2 && ncclMin == 3 && ncclAvg == 4 &&
      ncclNumOps == 5);
CHECK(ncclMaxRedOp == 0x7fffffff && sizeof(ncclRedOp_t) == 4);
CHECK(ncclScalarDevice == 0 && ncclScalarHostImmediate == 1);
CHECK(ncclStatGpuMemSuspend == 0 && ncclStatGpuMemSuspended == 1 && ncclStatGpuMemPersist == 2);
CHECK(ncclStatGpuMemTotal == 3);

CHECK(NCCL_SPLIT_NOCOLOR == -1 && NCCL_API_MAGIC == 0xcafebeef && NCCL_CONFIG_UNDEF_INT == INT_MIN);
CHECK(NCCL_WIN_DEFAULT == 0 && NCCL_WIN_COLL_SYMMETRIC == 1 && NCCL_WIN_STRICT_ORDERING == 2);
CHECK(NCCL_WIN_GIN_ONLY == 4 && NCCL_WIN_CFT_COUNTED == 8 && NCCL_WIN_REQUIRED_ALIGNMENT == 4096);
CHECK(NCCL_ENCRYPTION_MODE_NONE == 0 && NCCL_ENCRYPTION_MODE_PSK == 1);
CHECK(ncclHostCftDefault == INT_MIN && ncclHostCftEnable == 1 && ncclHostCftFallback == 3);
CHECK(ncclNvlsHostDefault == INT_MIN && ncclNvlsHostDisableTransport == 1);
CHECK(ncclNvlsHostDisableSymmetricMultimem == 2 && ncclNvlsHostDisable == INT_MAX);
CHECK(NCCL_CTA_POLICY_DEFAULT == 0 && NCCL_CTA_POLICY_EFFICIENCY == 1 && NCCL_CTA_POLICY_ZERO == 2);
CHECK(NCCL_SHRINK_DEFAULT == 0 && NCCL_SHRINK_ABORT == 1 && NCCL_REVOKE_DEFAULT == 0 &&
      NCCL_SUSPEND_MEM == 1);

CHECK(sizeof(ncclConfig_t) == 120);
CHECK_OFFSET(ncclConfig_t, size, 0);
CHECK_OFFSET(ncclConfig_t, magic, 8);
CHECK_OFFSET(ncclConfig_t, version, 12);
CHECK_OFFSET(ncclConfig_t, blocking, 16);
CHECK_OFFSET(ncclConfig_t, cgaClusterSize, 20);
CHECK_OFFSET(ncclConfig_t, minCTAs, 24);
CHECK_OFFSET(ncclConfig_t, maxCTAs, 28);
CHECK_OFFSET(ncclConfig_t, netName, 32);
CHECK_OFFSET(ncclConfig_t, splitShare, 40);
CHECK_OFFSET(ncclConfig_t, trafficClass, 44);
CHECK_OFFSET(ncclConfig_t, commName, 48);
CHECK_OFFSET(ncclConfig_t, collnetEnable, 56);
CHECK_OFFSET(ncclConfig_t, CTAPolicy, 60);
CHECK_OFFSET(ncclConfig_t, shrinkShare, 64);
CHECK_OFFSET(ncclConfig_t, nvlsCTAs, 68);
CHECK_OFFSET(ncclConfig_t, nChannelsPerNetPeer, 72);
CHECK_OFFSET(ncclConfig_t, nvlinkCentricSched, 76);
CHECK_OFFSET(ncclConfig_t, graphUsageMode, 80);
CHECK_OFFSET(ncclConfig_t, numRmaCtx, 84);
CHECK_OFFSET(ncclConfig_t, maxP2pPeers, 88);
CHECK_OFFSET(ncclConfig_t, graphStreamOrdering, 92);
CHECK_OFFSET(ncclConfig_t, launchOrderImplicit, 96);
CHECK_OFFSET(ncclConfig_t, numRmaSig, 100);
CHECK_OFFSET(ncclConfig_t, rmaEagerInit, 104);
CHECK_OFFSET(ncclConfig_t, hostCftMode, 108);
CHECK_OFFSET(ncclConfig_t, nvlsHostMode, 112);

CHECK(sizeof(ncclCollConfig_t) == 72);
CHECK_OFFSET(ncclCollConfig_t, magic, 8);
CHECK_OFFSET(ncclCollConfig_t, version, 12);
CHECK_OFFSET(ncclCollConfig_t, ext, 16);
CHECK_OFFSET(ncclCollConfig_t, minCTAs, 24);
CHECK_OFFSET(ncclCollConfig_t, maxCTAs, 28);
CHECK_OFFSET(ncclCollConfig_t, nvlsCTAs, 32);
CHECK_OFFSET(ncclCollConfig_t, cgaClusterSize, 36);
CHECK_OFFSET(ncclCollConfig_t, algSelection, 40);
CHECK_OFFSET(ncclCollConfig_t, forceAlgSelection, 48);
CHECK_OFFSET(ncclCollConfig_t, CTAPolicy, 52);
CHECK_OFFSET(ncclCollConfig_t, userProfilerTag, 56);
CHECK_OFFSET(ncclCollConfig_t, launchCompletionEvent, 64);

CHECK(sizeof(ncclConfigExt_t) == 24);
CHECK_OFFSET(ncclConfigExt_t, next, 0);
CHECK_OFFSET(ncclConfigExt_t, key.vendorId, 8);
CHECK_OFFSET(ncclConfigExt_t, key.optionId, 12);
CHECK_OFFSET(ncclConfigExt_t, val, 16);

CHECK(sizeof(ncclEncryptionConfig_t) == 32);
CHECK_OFFSET(ncclEncryptionConfig_t, mode, 16);
CHECK_OFFSET(ncclEncryptionConfig_t, psk, 24);

CHECK(sizeof(ncclSimInfo_t) == 24);
CHECK_OFFSET(ncclSimInfo_t, estimatedTime, 16);
CHECK(sizeof(ncclWaitSignalDesc_t) == 16);

/* The types of functions, by assignment: an argument more, less or of another type is an error
 * here. */
typedef ncclResult_t (*all_reduce_t)(
    const void*, void*, size_t, ncclDataType_t, ncclRedOp_t, ncclComm_t, cudaStream_t);
typedef ncclResult_t (*init_rank_t)(ncclComm_t*, int, ncclUniqueId, int);
typedef ncclResult_t (*init_scalable_t)(ncclComm_t*, int, int, int, ncclUniqueId*, ncclConfig_t*);
typedef ncclResult_t (*split_t)(ncclComm_t, int, int, ncclComm_t*, ncclConfig_t*);
typedef ncclResult_t (*send_t)(const void*, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t);
all_reduce_t plexus_abi_all_reduce = ncclAllReduce;
init_rank_t plexus_abi_init_rank = pncclCommInitRank;
init_scalable_t plexus_abi_init_scalable = ncclCommInitRankScalable;
split_t plexus_abi_split = ncclCommSplit;
send_t plexus_abi_send = ncclSend;

const ncclConfig_t plexus_abi_config = NCCL_CONFIG_INITIALIZER;
const ncclSimInfo_t plexus_abi_sim = NCCL_SIM_INFO_INITIALIZER;
const ncclCollConfig_t plexus_abi_coll_config = NCCL_COLLCONFIG_INITIALIZER;
const ncclEncryptionConfig_t plexus_abi_encryption = NCCL_ENCRYPTION_CONFIG_INITIALIZER;
