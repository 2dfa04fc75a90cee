/* SPDX-License-Identifier: Apache-2.0
 *
 * The CUDA runtime interface as integrations/cudart has it over host memory: the functions of CUDA
 * 13 that programs around NCCL use. C and C++. What is missing here is missing in the library, too,
 * or returns cudaErrorNotSupported there.
 */
#ifndef PLEXUS_CUDA_RUNTIME_API_H_
#define PLEXUS_CUDA_RUNTIME_API_H_

#include "driver_types.h"
#include "vector_functions.h"

#define CUDART_VERSION 13000
#define __CUDART_API_VERSION CUDART_VERSION

/* nvcc --default-stream per-thread: NULL is the thread's default stream. */
#ifdef CUDA_API_PER_THREAD_DEFAULT_STREAM
#define cudaMemcpy cudaMemcpy_ptds
#define cudaMemcpy2D cudaMemcpy2D_ptds
#define cudaMemset cudaMemset_ptds
#define cudaMemcpyAsync cudaMemcpyAsync_ptsz
#define cudaMemcpy2DAsync cudaMemcpy2DAsync_ptsz
#define cudaMemsetAsync cudaMemsetAsync_ptsz
#define cudaMemset2DAsync cudaMemset2DAsync_ptsz
#define cudaMallocAsync cudaMallocAsync_ptsz
#define cudaFreeAsync cudaFreeAsync_ptsz
#define cudaEventRecord cudaEventRecord_ptsz
#define cudaGraphLaunch cudaGraphLaunch_ptsz
#define cudaLaunchKernel cudaLaunchKernel_ptsz
#define cudaLaunchHostFunc cudaLaunchHostFunc_ptsz
#define cudaStreamSynchronize cudaStreamSynchronize_ptsz
#define cudaStreamQuery cudaStreamQuery_ptsz
#define cudaStreamWaitEvent cudaStreamWaitEvent_ptsz
#define cudaStreamGetFlags cudaStreamGetFlags_ptsz
#define cudaStreamGetPriority cudaStreamGetPriority_ptsz
#define cudaStreamIsCapturing cudaStreamIsCapturing_ptsz
#define cudaStreamBeginCapture cudaStreamBeginCapture_ptsz
#define cudaStreamEndCapture cudaStreamEndCapture_ptsz
#define cudaStreamAddCallback cudaStreamAddCallback_ptsz
#endif

/* Default values of C++. */
#ifdef __cplusplus
#define PLEXUS_OR(value) = value
extern "C" {
#else
#define PLEXUS_OR(value)
#endif

/* ---- devices ---- */
cudaError_t cudaGetDeviceCount(int* count);
cudaError_t cudaGetDevice(int* device);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaInitDevice(int device, unsigned int deviceFlags, unsigned int flags);
cudaError_t cudaSetValidDevices(int* devices, int count);
cudaError_t cudaChooseDevice(int* device, const struct cudaDeviceProp* wish);
cudaError_t cudaSetDeviceFlags(unsigned int flags);
cudaError_t cudaGetDeviceFlags(unsigned int* flags);
cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp* properties, int device);
cudaError_t cudaDeviceGetAttribute(int* value, enum cudaDeviceAttr attribute, int device);
cudaError_t cudaDeviceGetPCIBusId(char* id, int size, int device);
cudaError_t cudaDeviceGetByPCIBusId(int* device, const char* id);
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest);
cudaError_t cudaDeviceGetLimit(size_t* value, enum cudaLimit limit);
cudaError_t cudaDeviceSetLimit(enum cudaLimit limit, size_t value);
cudaError_t cudaDeviceGetCacheConfig(enum cudaFuncCache* config);
cudaError_t cudaDeviceSetCacheConfig(enum cudaFuncCache config);
cudaError_t cudaDeviceSynchronize(void);
cudaError_t cudaDeviceReset(void);
cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer);
cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned int flags);
cudaError_t cudaDeviceDisablePeerAccess(int peer);
cudaError_t cudaDeviceGetP2PAttribute(int* value,
                                      enum cudaDeviceP2PAttr attribute,
                                      int source,
                                      int target);
cudaError_t cudaDriverGetVersion(int* version);
cudaError_t cudaRuntimeGetVersion(int* version);
cudaError_t cudaProfilerStart(void);
cudaError_t cudaProfilerStop(void);

/* ---- errors ---- */
cudaError_t cudaGetLastError(void);
cudaError_t cudaPeekAtLastError(void);
const char* cudaGetErrorName(cudaError_t error);
const char* cudaGetErrorString(cudaError_t error);

/* ---- memory ---- */
cudaError_t cudaMalloc(void** memory, size_t bytes);
cudaError_t cudaMallocPitch(void** memory, size_t* pitch, size_t width, size_t height);
cudaError_t cudaMalloc3D(struct cudaPitchedPtr* memory, struct cudaExtent extent);
cudaError_t cudaMallocManaged(void** memory,
                              size_t bytes,
                              unsigned int flags PLEXUS_OR(cudaMemAttachGlobal));
cudaError_t cudaMallocHost(void** memory, size_t bytes);
cudaError_t cudaHostAlloc(void** memory, size_t bytes, unsigned int flags);
cudaError_t cudaFree(void* memory);
cudaError_t cudaFreeHost(void* memory);
cudaError_t cudaHostRegister(void* memory, size_t bytes, unsigned int flags);
cudaError_t cudaHostUnregister(void* memory);
cudaError_t cudaHostGetDevicePointer(void** device, void* host, unsigned int flags);
cudaError_t cudaHostGetFlags(unsigned int* flags, void* host);
cudaError_t cudaMemGetInfo(size_t* free, size_t* total);
cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes* attributes, const void* pointer);
cudaError_t cudaMallocAsync(void** memory, size_t bytes, cudaStream_t stream);
cudaError_t cudaMallocFromPoolAsync(void** memory,
                                    size_t bytes,
                                    cudaMemPool_t pool,
                                    cudaStream_t stream);
cudaError_t cudaFreeAsync(void* memory, cudaStream_t stream);
cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* pool, int device);
cudaError_t cudaDeviceGetMemPool(cudaMemPool_t* pool, int device);
cudaError_t cudaDeviceSetMemPool(int device, cudaMemPool_t pool);
cudaError_t cudaMemPoolCreate(cudaMemPool_t* pool, const struct cudaMemPoolProps* properties);
cudaError_t cudaMemPoolDestroy(cudaMemPool_t pool);
cudaError_t cudaMemPoolTrimTo(cudaMemPool_t pool, size_t keep);
cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool,
                                    enum cudaMemPoolAttr attribute,
                                    void* value);
cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t pool,
                                    enum cudaMemPoolAttr attribute,
                                    void* value);
cudaError_t cudaMemPoolSetAccess(cudaMemPool_t pool,
                                 const struct cudaMemAccessDesc* list,
                                 size_t count);
cudaError_t cudaMemAdvise(const void* memory,
                          size_t bytes,
                          enum cudaMemoryAdvise advice,
                          struct cudaMemLocation location);
cudaError_t cudaMemPrefetchAsync(const void* memory,
                                 size_t bytes,
                                 struct cudaMemLocation location,
                                 unsigned int flags,
                                 cudaStream_t stream PLEXUS_OR(0));
cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t* handle, void* memory);
cudaError_t cudaIpcOpenMemHandle(void** memory, cudaIpcMemHandle_t handle, unsigned int flags);
cudaError_t cudaIpcCloseMemHandle(void* memory);

/* ---- copies ---- */
cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, enum cudaMemcpyKind kind);
cudaError_t cudaMemcpyAsync(void* to,
                            const void* from,
                            size_t bytes,
                            enum cudaMemcpyKind kind,
                            cudaStream_t stream PLEXUS_OR(0));
cudaError_t cudaMemcpyPeer(void* to, int toDevice, const void* from, int fromDevice, size_t bytes);
cudaError_t cudaMemcpyPeerAsync(void* to,
                                int toDevice,
                                const void* from,
                                int fromDevice,
                                size_t bytes,
                                cudaStream_t stream PLEXUS_OR(0));
cudaError_t cudaMemcpy2D(void* to,
                         size_t toPitch,
                         const void* from,
                         size_t fromPitch,
                         size_t width,
                         size_t height,
                         enum cudaMemcpyKind kind);
cudaError_t cudaMemcpy2DAsync(void* to,
                              size_t toPitch,
                              const void* from,
                              size_t fromPitch,
                              size_t width,
                              size_t height,
                              enum cudaMemcpyKind kind,
                              cudaStream_t stream PLEXUS_OR(0));
cudaError_t cudaMemcpy3D(const struct cudaMemcpy3DParms* copy);
cudaError_t cudaMemcpy3DAsync(const struct cudaMemcpy3DParms* copy,
                              cudaStream_t stream PLEXUS_OR(0));
cudaError_t cudaMemcpyToSymbol(const void* symbol,
                               const void* from,
                               size_t bytes,
                               size_t offset PLEXUS_OR(0),
                               enum cudaMemcpyKind kind PLEXUS_OR(cudaMemcpyHostToDevice));
cudaError_t cudaMemcpyFromSymbol(void* to,
                                 const void* symbol,
                                 size_t bytes,
                                 size_t offset PLEXUS_OR(0),
                                 enum cudaMemcpyKind kind PLEXUS_OR(cudaMemcpyDeviceToHost));
cudaError_t cudaMemset(void* memory, int value, size_t bytes);
cudaError_t cudaMemsetAsync(void* memory,
                            int value,
                            size_t bytes,
                            cudaStream_t stream PLEXUS_OR(0));
cudaError_t cudaMemset2D(void* memory, size_t pitch, int value, size_t width, size_t height);
cudaError_t cudaMemset2DAsync(void* memory,
                              size_t pitch,
                              int value,
                              size_t width,
                              size_t height,
                              cudaStream_t stream PLEXUS_OR(0));

/* ---- streams ---- */
cudaError_t cudaStreamCreate(cudaStream_t* stream);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned int flags);
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned int flags, int priority);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaStreamQuery(cudaStream_t stream);
cudaError_t cudaStreamWaitEvent(cudaStream_t stream,
                                cudaEvent_t event,
                                unsigned int flags PLEXUS_OR(0));
cudaError_t cudaStreamGetFlags(cudaStream_t stream, unsigned int* flags);
cudaError_t cudaStreamGetPriority(cudaStream_t stream, int* priority);
cudaError_t cudaStreamGetId(cudaStream_t stream, unsigned long long* id);
cudaError_t cudaStreamGetDevice(cudaStream_t stream, int* device);
cudaError_t cudaStreamAddCallback(cudaStream_t stream,
                                  cudaStreamCallback_t callback,
                                  void* user,
                                  unsigned int flags);
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* user);
cudaError_t cudaStreamAttachMemAsync(cudaStream_t stream,
                                     void* memory,
                                     size_t bytes PLEXUS_OR(0),
                                     unsigned int flags PLEXUS_OR(cudaMemAttachSingle));

/* ---- events ---- */
cudaError_t cudaEventCreate(cudaEvent_t* event);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned int flags);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream PLEXUS_OR(0));
cudaError_t cudaEventRecordWithFlags(cudaEvent_t event,
                                     cudaStream_t stream PLEXUS_OR(0),
                                     unsigned int flags PLEXUS_OR(0));
cudaError_t cudaEventQuery(cudaEvent_t event);
cudaError_t cudaEventSynchronize(cudaEvent_t event);
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end);

/* ---- graphs ---- */
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode);
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph);
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus* status);
cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream,
                                     enum cudaStreamCaptureStatus* status,
                                     unsigned long long* id PLEXUS_OR(0),
                                     cudaGraph_t* graph PLEXUS_OR(0),
                                     const cudaGraphNode_t** nodes PLEXUS_OR(0),
                                     const cudaGraphEdgeData** edges PLEXUS_OR(0),
                                     size_t* count PLEXUS_OR(0));
cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode* mode);
cudaError_t cudaGraphCreate(cudaGraph_t* graph, unsigned int flags);
cudaError_t cudaGraphDestroy(cudaGraph_t graph);
cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, size_t* count);
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec,
                                 cudaGraph_t graph,
                                 unsigned long long flags PLEXUS_OR(0));
cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* exec,
                                          cudaGraph_t graph,
                                          unsigned long long flags PLEXUS_OR(0));
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream);
cudaError_t cudaGraphNodeGetType(cudaGraphNode_t node, enum cudaGraphNodeType* type);
cudaError_t cudaGraphAddKernelNode(cudaGraphNode_t* node,
                                   cudaGraph_t graph,
                                   const cudaGraphNode_t* after,
                                   size_t count,
                                   const struct cudaKernelNodeParams* parameters);
cudaError_t cudaGraphAddMemcpyNode(cudaGraphNode_t* node,
                                   cudaGraph_t graph,
                                   const cudaGraphNode_t* after,
                                   size_t count,
                                   const struct cudaMemcpy3DParms* parameters);
cudaError_t cudaGraphAddMemcpyNode1D(cudaGraphNode_t* node,
                                     cudaGraph_t graph,
                                     const cudaGraphNode_t* after,
                                     size_t count,
                                     void* to,
                                     const void* from,
                                     size_t bytes,
                                     enum cudaMemcpyKind kind);
cudaError_t cudaGraphAddMemsetNode(cudaGraphNode_t* node,
                                   cudaGraph_t graph,
                                   const cudaGraphNode_t* after,
                                   size_t count,
                                   const struct cudaMemsetParams* parameters);
cudaError_t cudaGraphAddHostNode(cudaGraphNode_t* node,
                                 cudaGraph_t graph,
                                 const cudaGraphNode_t* after,
                                 size_t count,
                                 const struct cudaHostNodeParams* parameters);
cudaError_t cudaGraphAddEmptyNode(cudaGraphNode_t* node,
                                  cudaGraph_t graph,
                                  const cudaGraphNode_t* after,
                                  size_t count);
cudaError_t cudaGraphAddChildGraphNode(cudaGraphNode_t* node,
                                       cudaGraph_t graph,
                                       const cudaGraphNode_t* after,
                                       size_t count,
                                       cudaGraph_t child);
cudaError_t cudaGraphAddDependencies(cudaGraph_t graph,
                                     const cudaGraphNode_t* from,
                                     const cudaGraphNode_t* to,
                                     const cudaGraphEdgeData* edges,
                                     size_t count);
cudaError_t cudaGraphUpload(cudaGraphExec_t exec, cudaStream_t stream);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec);
cudaError_t cudaGraphExecUpdate(cudaGraphExec_t exec,
                                cudaGraph_t graph,
                                cudaGraphExecUpdateResultInfo* info);

/* ---- functions ---- */
cudaError_t cudaLaunchKernel(const void* function,
                             dim3 grid,
                             dim3 block,
                             void** arguments,
                             size_t sharedBytes,
                             cudaStream_t stream);
cudaError_t cudaLaunchCooperativeKernel(const void* function,
                                        dim3 grid,
                                        dim3 block,
                                        void** arguments,
                                        size_t sharedBytes,
                                        cudaStream_t stream);
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config,
                                const void* function,
                                void** arguments);
cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes* attributes, const void* function);
cudaError_t cudaFuncSetAttribute(const void* function, enum cudaFuncAttribute attribute, int value);
cudaError_t cudaFuncSetCacheConfig(const void* function, enum cudaFuncCache config);
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks,
                                                          const void* function,
                                                          int threads,
                                                          size_t sharedBytes);
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
    int* blocks, const void* function, int threads, size_t sharedBytes, unsigned int flags);
cudaError_t cudaGetDriverEntryPoint(const char* symbol,
                                    void** function,
                                    unsigned long long flags,
                                    enum cudaDriverEntryPointQueryResult* status PLEXUS_OR(0));
cudaError_t cudaGetDriverEntryPointByVersion(const char* symbol,
                                             void** function,
                                             unsigned int version,
                                             unsigned long long flags,
                                             enum cudaDriverEntryPointQueryResult* status
                                                 PLEXUS_OR(0));

#ifdef __cplusplus
}
#endif
#undef PLEXUS_OR

#endif
