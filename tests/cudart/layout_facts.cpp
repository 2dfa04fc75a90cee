// SPDX-License-Identifier: Apache-2.0
// Sizes, offsets and numbers of the CUDA runtime's interface, by the headers that this is compiled
// with: those of integrations/cudart, and CUDA's where they are.
#include "tests/cudart/layout_facts.hpp"

#ifdef PLEXUS_NO_CUDA13
std::vector<Fact> FACTS() { return {}; }
#else
#include <cstddef>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <cuda_runtime.h>
#include <iterator>

// NOLINTNEXTLINE(cppcoreguidelines-macro-usage): the name of a fact is its expression
#define FACT(value) \
  Fact { #value, static_cast < long long>(value) }

namespace {

const Fact kAll[] = {
    FACT(CUDART_VERSION / 1000),
    FACT(sizeof(cudaDeviceProp)),
    FACT(offsetof(cudaDeviceProp, uuid)),
    FACT(offsetof(cudaDeviceProp, totalGlobalMem)),
    FACT(offsetof(cudaDeviceProp, major)),
    FACT(offsetof(cudaDeviceProp, multiProcessorCount)),
    FACT(offsetof(cudaDeviceProp, pciBusID)),
    FACT(offsetof(cudaDeviceProp, l2CacheSize)),
    FACT(offsetof(cudaDeviceProp, managedMemory)),
    FACT(offsetof(cudaDeviceProp, sharedMemPerBlockOptin)),
    FACT(offsetof(cudaDeviceProp, memoryPoolsSupported)),
    FACT(offsetof(cudaDeviceProp, reserved)),
    FACT(sizeof(cudaPointerAttributes)),
    FACT(offsetof(cudaPointerAttributes, hostPointer)),
    FACT(sizeof(cudaFuncAttributes)),
    FACT(offsetof(cudaFuncAttributes, maxThreadsPerBlock)),
    FACT(sizeof(cudaMemcpy3DParms)),
    FACT(offsetof(cudaMemcpy3DParms, extent)),
    FACT(sizeof(cudaMemPoolProps)),
    FACT(sizeof(cudaMemLocation)),
    FACT(sizeof(cudaIpcMemHandle_t)),
    FACT(sizeof(cudaLaunchConfig_t)),
    FACT(offsetof(cudaLaunchConfig_t, stream)),
    FACT(sizeof(cudaLaunchAttribute)),
    FACT(sizeof(cudaGraphInstantiateParams)),
    FACT(sizeof(cudaGraphExecUpdateResultInfo)),
    FACT(sizeof(cudaGraphEdgeData)),
    FACT(sizeof(cudaMemsetParams)),
    FACT(sizeof(cudaKernelNodeParams)),
    FACT(sizeof(cudaUUID_t)),
    FACT(sizeof(dim3)),
    FACT(sizeof(float3)),
    FACT(alignof(float4)),
    FACT(alignof(double2)),
    FACT(alignof(char4)),
    FACT(sizeof(longlong2)),
    FACT(sizeof(__half)),
    FACT(sizeof(__nv_bfloat16)),
    FACT(sizeof(__nv_fp8_e4m3)),
    FACT(sizeof(cudaError_t)),
    FACT(cudaErrorInvalidValue),
    FACT(cudaErrorMemoryAllocation),
    FACT(cudaErrorNotReady),
    FACT(cudaErrorNoKernelImageForDevice),
    FACT(cudaErrorInvalidResourceHandle),
    FACT(cudaErrorPeerAccessAlreadyEnabled),
    FACT(cudaErrorNotSupported),
    FACT(cudaErrorStreamCaptureImplicit),
    FACT(cudaErrorCapturedEvent),
    FACT(cudaErrorUnknown),
    FACT(cudaDevAttrMultiProcessorCount),
    FACT(cudaDevAttrComputeCapabilityMajor),
    FACT(cudaDevAttrPciBusId),
    FACT(cudaDevAttrMemoryPoolsSupported),
    FACT(cudaDevAttrMax),
    FACT(cudaMemcpyDefault),
    FACT(cudaMemoryTypeManaged),
    FACT(cudaStreamNonBlocking),
    FACT(cudaEventDisableTiming),
    FACT(cudaEventInterprocess),
    FACT(cudaHostAllocWriteCombined),
    FACT(cudaHostRegisterReadOnly),
    FACT(cudaIpcMemLazyEnablePeerAccess),
    FACT(cudaStreamCaptureModeRelaxed),
    FACT(cudaGraphNodeTypeHost),
    FACT(cudaLimitPersistingL2CacheSize),
    FACT(cudaLaunchAttributePriority),
    FACT(cudaDevP2PAttrNativeAtomicSupported),
    FACT(cudaDriverEntryPointSymbolNotFound),
    FACT(cudaFuncAttributeMaxDynamicSharedMemorySize),
};

}  // namespace

std::vector<Fact> FACTS() { return {std::begin(kAll), std::end(kAll)}; }
#endif
