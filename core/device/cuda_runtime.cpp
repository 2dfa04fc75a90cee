// SPDX-License-Identifier: Apache-2.0
// DeviceRuntime over the CUDA runtime. The static libcudart loads the driver when it is first
// called and reports its absence as an error, so that one binary works everywhere.
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "core/base/immortal.hpp"
#include "core/device/choose_device.hpp"
#include "kernels/cuda/launch.hpp"

namespace plexus {
namespace {

Result<void> check(cudaError_t code, const char* call, int device) {
  if (code == cudaSuccess) {
    return ok();
  }
  // Clear the error, which the user's next CUDA call would report otherwise.
  static_cast<void>(cudaGetLastError());
  return fail(Code::kUnhandledCudaError, "{} failed on cuda:{}: {} ({})", call, device,
              cudaGetErrorString(code), cudaGetErrorName(code));
}

/// "12.8", of CUDA's number.
std::string version_text(int version) {
  constexpr int kMajor = 1000;
  constexpr int kMinor = 10;
  return fmt::format("{}.{}", version / kMajor, version % kMajor / kMinor);
}

bool is_lack_of_code(cudaError_t code) {
  return code == cudaErrorNoKernelImageForDevice || code == cudaErrorInvalidDeviceFunction ||
         code == cudaErrorUnsupportedPtxVersion || code == cudaErrorInvalidKernelImage;
}

/// Looks up a driver function; the driver library is not linked.
template <class Function>
Result<Function> driver_function(const char* name) {
  constexpr unsigned int kVersion = 12000;  // the CUDA version whose signatures are used here
  void* found = nullptr;
  cudaDriverEntryPointQueryResult status = cudaDriverEntryPointSymbolNotFound;
#if CUDART_VERSION >= 12050
  const cudaError_t code =
      cudaGetDriverEntryPointByVersion(name, &found, kVersion, cudaEnableDefault, &status);
#else
  static_assert(CUDART_VERSION >= kVersion);
  const cudaError_t code = cudaGetDriverEntryPoint(name, &found, cudaEnableDefault, &status);
#endif
  if (code != cudaSuccess || status != cudaDriverEntryPointSuccess) {
    static_cast<void>(cudaGetLastError());
    return fail(Code::kUnhandledCudaError, "the CUDA driver has no {}: update the driver", name);
  }
  return reinterpret_cast<Function>(found);
}

/// Makes `device` current (< 0: leaves it) and allows calls that are forbidden while another thread
/// captures a graph. Restores both at the end.
class OnDevice {
 public:
  explicit OnDevice(int device) {
    static_cast<void>(cudaThreadExchangeStreamCaptureMode(&mode_));
    if (device >= 0 && cudaGetDevice(&before_) == cudaSuccess && before_ != device) {
      changed_ = cudaSetDevice(device) == cudaSuccess;
    }
  }
  ~OnDevice() {
    if (changed_) {
      static_cast<void>(cudaSetDevice(before_));
    }
    static_cast<void>(cudaThreadExchangeStreamCaptureMode(&mode_));
  }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
  int before_ = -1;
  bool changed_ = false;
};

/// The driver that is loaded, which is never closed; nullptr: none, or one over host memory
/// (integrations/cudart).
void* find_driver() noexcept {
  void* const driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
  return driver == nullptr || dlsym(driver, "plexusVirtualDriver") != nullptr ? nullptr : driver;
}

/// As the driver reads it, once.
bool reads_launch_blocking() noexcept {
  const char* const value = std::getenv("CUDA_LAUNCH_BLOCKING");
  return value != nullptr && std::atoi(value) != 0;  // NOLINT(cert-err34-c): as the driver
}

class CudaRuntime final : public DeviceRuntime {
 public:
  [[nodiscard]] bool waits_in_launch() const noexcept override { return waits_in_launch_; }
  Result<int> count() override {
    int count = 0;
    const cudaError_t code = cudaGetDeviceCount(&count);
    if (code == cudaSuccess) {
      return count;
    }
    static_cast<void>(cudaGetLastError());
    int driver = 0;  // the latest CUDA that it serves; 0: there is none
    static_cast<void>(cudaDriverGetVersion(&driver));
    if (driver == 0 || code == cudaErrorStubLibrary) {
      return fail(Code::kInvalidUsage, "no CUDA driver is installed");
    }
    if (code == cudaErrorNoDevice) {
      return fail(Code::kInvalidUsage, "the CUDA driver reports no GPU");
    }
    if (code == cudaErrorInsufficientDriver) {
      return fail(
          Code::kUnhandledCudaError,
          "the CUDA driver is too old: it serves CUDA {}, and this library needs {}; update "
          "the driver",
          version_text(driver), version_text(CUDART_VERSION));
    }
    return fail(Code::kUnhandledCudaError, "CUDA cannot use the GPUs here: {} ({})",
                cudaGetErrorString(code), cudaGetErrorName(code));
  }

  Result<int> current() override {
    int device = 0;
    PLEXUS_TRY(check(cudaGetDevice(&device), "cudaGetDevice", -1));
    return device;
  }

  Result<DeviceFacts> describe(int device) override {
    const OnDevice on(-1);  // no device: a query must not create a context
    cudaDeviceProp properties{};
    PLEXUS_TRY(
        check(cudaGetDeviceProperties(&properties, device), "cudaGetDeviceProperties", device));
    char bus_id[32] = {};
    PLEXUS_TRY(check(cudaDeviceGetPCIBusId(bus_id, sizeof(bus_id), device), "cudaDeviceGetPCIBusId",
                     device));
    DeviceFacts facts;
    facts.name = properties.name;
    for (const char* letter = bus_id; *letter != '\0'; ++letter) {  // lower case, as in /sys
      const bool is_upper = *letter >= 'A' && *letter <= 'F';
      facts.bus_id += static_cast<char>(is_upper ? *letter + ('a' - 'A') : *letter);
    }
    static_assert(sizeof(properties.uuid) == sizeof(facts.uuid));
    std::memcpy(facts.uuid.data(), &properties.uuid, sizeof(facts.uuid));
    facts.compute_capability = properties.major * 10 + properties.minor;
    int clock_khz = 0;
    int bus_bits = 0;
    if (cudaDeviceGetAttribute(&clock_khz, cudaDevAttrMemoryClockRate, device) == cudaSuccess &&
        cudaDeviceGetAttribute(&bus_bits, cudaDevAttrGlobalMemoryBusWidth, device) == cudaSuccess) {
      constexpr double kEdges = 2;  // data is transferred on both clock edges
      facts.memory_gb_per_s = static_cast<uint32_t>(kEdges * clock_khz * 1e3 * bus_bits / 8 / 1e9);
    }
    return facts;
  }

  Result<int> blocks_max(int device) override {
    const OnDevice on(device);
    int error = cudaSuccess;
    const uint32_t blocks = device_blocks_max(kDeviceThreadsMax, &error);
    if (is_lack_of_code(static_cast<cudaError_t>(error))) {
      static_cast<void>(cudaGetLastError());
      PLEXUS_TRY(facts, describe(device));
      return fail(Code::kUnhandledCudaError,
                  "this build has no code for cuda:{} ({}, sm_{}): build with "
                  "-DPLEXUS_CUDA_ARCHITECTURES={}-real",
                  device, facts.name, facts.compute_capability, facts.compute_capability);
    }
    PLEXUS_TRY(check(static_cast<cudaError_t>(error), "querying the kernel", device));
    return static_cast<int>(blocks);
  }

  Result<bool> can_reach(int device, int peer) override {
    if (device == peer) {
      return true;
    }
    const OnDevice on(-1);
    int possible = 0;
    PLEXUS_TRY(
        check(cudaDeviceCanAccessPeer(&possible, device, peer), "cudaDeviceCanAccessPeer", device));
    return possible != 0;
  }

  Result<void> enable_reach(int device, int peer) override {
    if (device == peer) {
      return ok();
    }
    const OnDevice on(device);
    const cudaError_t code = cudaDeviceEnablePeerAccess(peer, 0);
    if (code == cudaErrorPeerAccessAlreadyEnabled) {
      static_cast<void>(cudaGetLastError());
      return ok();
    }
    return check(code, "cudaDeviceEnablePeerAccess", device);
  }

  void adopt_thread(int device) noexcept override { static_cast<void>(cudaSetDevice(device)); }

  /// After a failure every call returns it.
  Result<void> find_fault(int device) override {
    const OnDevice on(device);
    PLEXUS_TRY(stream, own_stream(device));
    const cudaError_t code = cudaStreamQuery(stream);
    return code == cudaErrorNotReady ? ok() : check(code, "a kernel", device);
  }

  Result<void*> allocate(int device, size_t size_bytes) override {
    return allocate_rounded(device, size_bytes, false);
  }
  Result<void*> allocate_lasting(int device, size_t size_bytes) override {
    return allocate_rounded(device, size_bytes, true);
  }
  void release(int device, void* memory) noexcept override {
    {
      const std::lock_guard lock(mutex_);
      const auto size = sizes_.find(memory);
      const Size had = size->second;
      sizes_.erase(size);
      if (had.lasting || is_kept_for_reuse(had.rounded)) {
        spare_[{device, had.rounded}].push_back(memory);
        return;
      }
    }
    const OnDevice on(device);
    static_cast<void>(cudaFree(memory));
  }

  Result<void*> allocate_pinned(int device, size_t size_bytes) override {
    const OnDevice on(device);
    void* memory = nullptr;
    PLEXUS_TRY(
        check(cudaHostAlloc(&memory, size_bytes, cudaHostAllocPortable | cudaHostAllocMapped),
              "cudaHostAlloc", device));
    std::memset(memory, 0, size_bytes);
    return memory;
  }
  void release_pinned(int device, void* memory) noexcept override {
    const OnDevice on(device);
    static_cast<void>(cudaFreeHost(memory));
  }

  Result<void*> register_host(int device, void* memory, size_t size_bytes) override {
    const OnDevice on(device);
    PLEXUS_TRY(check(
        cudaHostRegister(memory, size_bytes, cudaHostRegisterPortable | cudaHostRegisterMapped),
        "cudaHostRegister", device));
    void* seen_at = nullptr;
    auto found =
        check(cudaHostGetDevicePointer(&seen_at, memory, 0), "cudaHostGetDevicePointer", device);
    if (found.has_error()) {
      static_cast<void>(cudaHostUnregister(memory));
      return std::move(found).error();
    }
    return seen_at;
  }
  void unregister_host(int device, void* memory) noexcept override {
    const OnDevice on(device);
    static_cast<void>(cudaHostUnregister(memory));
  }

  [[nodiscard]] PointerFacts describe_pointer(const void* pointer) noexcept override {
    cudaPointerAttributes attributes{};
    if (cudaPointerGetAttributes(&attributes, pointer) != cudaSuccess) {
      static_cast<void>(cudaGetLastError());
      return {};
    }
    switch (attributes.type) {
      case cudaMemoryTypeHost:
        return {.place = PointerFacts::Place::kPinned};
      case cudaMemoryTypeDevice:
        return {.place = PointerFacts::Place::kDevice, .device = attributes.device};
      case cudaMemoryTypeManaged:
        return {.place = PointerFacts::Place::kManaged};
      default:
        return {};
    }
  }

  [[nodiscard]] bool has_driver() noexcept override { return attribute_query() != nullptr; }

  [[nodiscard]] bool is_on_device_alone(const void* pointer) noexcept override {
    const auto query = attribute_query();
    const auto address = reinterpret_cast<CUdeviceptr>(pointer);
    unsigned int kind = 0;
    void* seen_at = nullptr;
    return query != nullptr &&
           query(&kind, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address) == CUDA_SUCCESS &&
           kind == CU_MEMORYTYPE_DEVICE &&
           query(&seen_at, CU_POINTER_ATTRIBUTE_HOST_POINTER, address) != CUDA_SUCCESS;
  }

  [[nodiscard]] bool is_open_to_peers(int /*device*/, const void* pointer) noexcept override {
    const auto query = attribute_query();
    const auto address = reinterpret_cast<CUdeviceptr>(pointer);
    unsigned int kind = 0;
    int is_plain = 1;  // from cudaMalloc
    return query == nullptr ||
           query(&kind, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address) != CUDA_SUCCESS ||
           kind != CU_MEMORYTYPE_DEVICE ||
           query(&is_plain, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, address) !=
               CUDA_SUCCESS ||
           is_plain != 0;
  }

  Result<void> copy(int device, void* to, const void* from, size_t size_bytes) override {
    const OnDevice on(device);
    PLEXUS_TRY(stream, own_stream(device));
    PLEXUS_TRY(check(cudaMemcpyAsync(to, from, size_bytes, cudaMemcpyDefault, stream),
                     "cudaMemcpyAsync", device));
    return check(cudaStreamSynchronize(stream), "cudaStreamSynchronize", device);
  }

  Result<Allocation> find_allocation(int device, const void* pointer) override {
    const PointerFacts facts = describe_pointer(pointer);
    if (facts.place != PointerFacts::Place::kDevice || facts.device != device) {
      return fail(Code::kInvalidArgument, "{} is not memory of cuda:{}", pointer, device);
    }
    PLEXUS_TRY(get_range, driver_function<decltype(&cuMemGetAddressRange)>("cuMemGetAddressRange"));
    PLEXUS_TRY(get_attribute,
               driver_function<decltype(&cuPointerGetAttribute)>("cuPointerGetAttribute"));
    const OnDevice on(device);
    const auto address = reinterpret_cast<CUdeviceptr>(pointer);
    CUdeviceptr base = 0;
    size_t size_bytes = 0;
    unsigned long long id = 0;
    if (get_range(&base, &size_bytes, address) != CUDA_SUCCESS ||
        get_attribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, address) != CUDA_SUCCESS) {
      return fail(Code::kUnhandledCudaError, "cuda:{} cannot find the allocation that contains {}",
                  device, pointer);
    }
    // NOLINTNEXTLINE(performance-no-int-to-ptr): so the driver names memory
    return Allocation{
        .base = reinterpret_cast<std::byte*>(base), .size_bytes = size_bytes, .id = id};
  }
  Result<MemoryHandle> export_memory(int device, void* memory) override {
    const OnDevice on(device);
    cudaIpcMemHandle_t handle{};
    PLEXUS_TRY(check(cudaIpcGetMemHandle(&handle, memory), "cudaIpcGetMemHandle", device));
    MemoryHandle made;
    static_assert(sizeof(handle) == sizeof(made.bytes));
    std::memcpy(made.bytes.data(), &handle, sizeof(handle));
    return made;
  }
  Result<void*> import_memory(int device, const MemoryHandle& handle) override {
    const OnDevice on(device);
    cudaIpcMemHandle_t theirs{};
    std::memcpy(&theirs, handle.bytes.data(), sizeof(theirs));
    void* memory = nullptr;
    PLEXUS_TRY(check(cudaIpcOpenMemHandle(&memory, theirs, cudaIpcMemLazyEnablePeerAccess),
                     "cudaIpcOpenMemHandle", device));
    return memory;
  }
  void close_imported(int device, void* memory) noexcept override {
    const OnDevice on(device);
    static_cast<void>(cudaIpcCloseMemHandle(memory));
  }

  Result<Dmabuf> export_dmabuf(int device, void* memory, size_t size_bytes) override {
    PLEXUS_TRY(get_handle, driver_function<decltype(&cuMemGetHandleForAddressRange)>(
                               "cuMemGetHandleForAddressRange"));
    const OnDevice on(device);
    Dmabuf made;
    const CUresult code = get_handle(&made.fd, reinterpret_cast<CUdeviceptr>(memory), size_bytes,
                                     CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0);
    if (code != CUDA_SUCCESS) {
      return fail(Code::kUnhandledCudaError,
                  "cuda:{} cannot export {} bytes as a dma-buf (error {})", device, size_bytes,
                  static_cast<int>(code));
    }
    return made;
  }

  Result<DeviceEvent> make_event(int device) override {
    const OnDevice on(device);
    cudaEvent_t event = nullptr;
    PLEXUS_TRY(check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming),
                     "cudaEventCreateWithFlags", device));
    return event;
  }
  void destroy_event(int device, DeviceEvent event) noexcept override {
    const OnDevice on(device);
    static_cast<void>(cudaEventDestroy(event));
  }
  Result<void> record(int device, DeviceEvent event, DeviceStream stream) override {
    const OnDevice on(device);
    return check(cudaEventRecord(event, stream), "cudaEventRecord", device);
  }
  Result<void> wait(int device, DeviceStream stream, DeviceEvent event) override {
    const OnDevice on(device);
    return check(cudaStreamWaitEvent(stream, event, 0), "cudaStreamWaitEvent", device);
  }
  Result<void> record_at_replay(int device, DeviceEvent event, DeviceStream stream) override {
    const OnDevice on(device);
    return check(cudaEventRecordWithFlags(event, stream, cudaEventRecordExternal),
                 "cudaEventRecordWithFlags", device);
  }
  Result<void> wait_at_replay(int device, DeviceStream stream, DeviceEvent event) override {
    const OnDevice on(device);
    return check(cudaStreamWaitEvent(stream, event, cudaEventWaitExternal), "cudaStreamWaitEvent",
                 device);
  }

  Result<void> launch(int device,
                      DeviceStream stream,
                      const DeviceBlock* blocks,
                      uint32_t count,
                      uint32_t threads) override {
    // The launch is captured if `stream` is; the thread's capture mode has no effect on that.
    const OnDevice on(device);
    return check(static_cast<cudaError_t>(launch_blocks(blocks, count, threads, stream)),
                 "the launch of a kernel", device);
  }

  Result<Capture> capture(int device, DeviceStream stream) override {
    const OnDevice on(device);
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    unsigned long long id = 0;
    const cudaError_t code = cudaStreamGetCaptureInfo(stream, &status, &id);
    // the legacy stream while another stream captures
    if (code == cudaErrorStreamCaptureImplicit) {
      static_cast<void>(cudaGetLastError());
      return Capture{};
    }
    PLEXUS_TRY(check(code, "cudaStreamGetCaptureInfo", device));
    if (status == cudaStreamCaptureStatusInvalidated) {
      return fail(Code::kInvalidUsage,
                  "the stream's graph capture is invalid after an error: end the capture first");
    }
    const bool active = status == cudaStreamCaptureStatusActive;
    return Capture{.active = active, .id = active ? id : 0};
  }

  Result<void> call_host(int device,
                         DeviceStream stream,
                         void (*function)(void*),
                         void* argument) override {
    const OnDevice on(device);
    return check(cudaLaunchHostFunc(stream, function, argument), "cudaLaunchHostFunc", device);
  }

  Result<void> call_after_graph(int device,
                                DeviceStream stream,
                                void (*function)(void*),
                                void* argument) override {
    const OnDevice on(device);
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    cudaGraph_t graph = nullptr;
#if CUDART_VERSION >= 13000
    const cudaError_t code = cudaStreamGetCaptureInfo(stream, &status, nullptr, &graph);
#else
    const cudaError_t code = cudaStreamGetCaptureInfo_v2(stream, &status, nullptr, &graph);
#endif
    PLEXUS_TRY(check(code, "cudaStreamGetCaptureInfo", device));
    cudaUserObject_t object = nullptr;
    PLEXUS_TRY(
        check(cudaUserObjectCreate(&object, argument, function, 1, cudaUserObjectNoDestructorSync),
              "cudaUserObjectCreate", device));
    return check(cudaGraphRetainUserObject(graph, object, 1, cudaGraphUserObjectMove),
                 "cudaGraphRetainUserObject", device);
  }

 private:
  using AttributeQuery = decltype(&cuPointerGetAttribute);
  /// nullptr: no driver is loaded in this process, which this does not change.
  AttributeQuery attribute_query() noexcept {
    auto* query = attribute_query_.load(std::memory_order_relaxed);
    if (query == nullptr) {
      void* const driver = find_driver();
      query = driver == nullptr
                  ? nullptr
                  : reinterpret_cast<AttributeQuery>(dlsym(driver, "cuPointerGetAttribute"));
      attribute_query_.store(query, std::memory_order_relaxed);
    }
    return query;
  }

  // cudaFree waits for all kernels of the device, and one of them may wait for a launch that its
  // caller has not made yet. Memory that plans release is therefore kept for later plans; only
  // sizes that are multiples of kExportGranule, which belong to a communicator or user, are freed.
  static size_t rounded_size(size_t size_bytes) {
    return size_bytes % kExportGranule == 0 ? size_bytes : std::bit_ceil(size_bytes);
  }

  Result<void*> allocate_rounded(int device, size_t size_bytes, bool lasting) {
    const OnDevice on(device);
    const size_t rounded = rounded_size(size_bytes);
    void* memory = take_spare(device, rounded);
    lasting = lasting || memory != nullptr;  // spare memory goes back to the spares
    if (memory == nullptr) {
      PLEXUS_TRY(check(cudaMalloc(&memory, rounded), "cudaMalloc", device));
    }
    auto cleared = clear(device, memory, size_bytes);
    if (cleared.has_error()) {
      static_cast<void>(cudaFree(memory));
      return std::move(cleared).error();
    }
    const std::lock_guard lock(mutex_);
    sizes_[memory] = {rounded, lasting};
    return memory;
  }

  void* take_spare(int device, size_t rounded) {
    const std::lock_guard lock(mutex_);
    auto& spare = spare_[{device, rounded}];
    if (spare.empty()) {
      return nullptr;
    }
    void* const memory = spare.back();
    spare.pop_back();
    return memory;
  }

  Result<void> clear(int device, void* memory, size_t size_bytes) {
    PLEXUS_TRY(stream, own_stream(device));
    PLEXUS_TRY(check(cudaMemsetAsync(memory, 0, size_bytes, stream), "cudaMemsetAsync", device));
    return check(cudaStreamSynchronize(stream), "cudaStreamSynchronize", device);
  }

  /// A stream that is independent of the user's streams. Requires that `device` is current.
  Result<cudaStream_t> own_stream(int device) {
    const std::lock_guard lock(mutex_);
    cudaStream_t& stream = streams_[device];
    if (stream == nullptr) {
      int lowest = 0;
      int highest = 0;
      PLEXUS_TRY(check(cudaDeviceGetStreamPriorityRange(&lowest, &highest),
                       "cudaDeviceGetStreamPriorityRange", device));
      PLEXUS_TRY(check(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, highest),
                       "cudaStreamCreateWithPriority", device));
    }
    return stream;
  }

  const bool waits_in_launch_ = reads_launch_blocking();
  std::atomic<AttributeQuery> attribute_query_{nullptr};
  std::mutex mutex_;
  std::map<int, cudaStream_t> streams_;  // guarded by mutex_; they live as long as the process
  struct Size {
    size_t rounded;
    bool lasting;
  };
  std::map<void*, Size> sizes_;  // allocations in use; guarded by mutex_
  std::map<std::pair<int, size_t>, std::vector<void*>> spare_;  // guarded by mutex_
};

}  // namespace

DeviceRuntime* cuda_runtime() { return &Immortal<CudaRuntime>::instance(); }

}  // namespace plexus
