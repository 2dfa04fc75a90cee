// SPDX-License-Identifier: Apache-2.0
// DeviceRuntime over the CUDA runtime. The static libcudart loads the driver when it is first
// called and reports its absence as an error, so that one binary works everywhere.
#include <cstdlib>
#include <cstring>
#include <cuda_runtime_api.h>

#include "core/base/immortal.hpp"
#include "core/device/choose_device.hpp"
#include "core/device/cuda_memory.hpp"
#include "kernels/cuda/launch.hpp"

namespace plexus {
namespace {

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

/// As the driver reads it, once.
bool reads_launch_blocking() noexcept {
  const char* const value = std::getenv("CUDA_LAUNCH_BLOCKING");
  return value != nullptr && std::atoi(value) != 0;  // NOLINT(cert-err34-c): as the driver
}

class CudaRuntime final : public CudaMemory {
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
  const bool waits_in_launch_ = reads_launch_blocking();
};

}  // namespace

DeviceRuntime* cuda_runtime() { return &Immortal<CudaRuntime>::instance(); }

}  // namespace plexus
