// SPDX-License-Identifier: Apache-2.0
// The functions of the CUDA runtime for streams, and what this library tells libplexus of them.
#include <algorithm>

#include "integrations/cudart/call.hpp"
#include "integrations/cudart/devices.hpp"
#include "integrations/cudart/include/cuda_runtime_api.h"
#include "integrations/cudart/runtime.hpp"

namespace plexus::cudart {
namespace {

constexpr int kLeastPriority = 0;
constexpr int kGreatestPriority = -5;

cudaError_t create(cudaStream_t* stream, unsigned flags, int priority) {
  PLEXUS_CUDART_TRY(check_pointer(stream, "the address of the stream"));
  if (flags != cudaStreamDefault && flags != cudaStreamNonBlocking) {
    return refuse(cudaErrorInvalidValue, "the flags are {:#x}", flags);
  }
  PLEXUS_CUDART_TRY(check_device(current_device()));
  const int within = std::clamp(priority, kGreatestPriority, kLeastPriority);
  return Runtime::instance().streams.create(flags, within, stream);
}

/// Gives `*out` what `pick` picks of the stream.
template <class T, class Pick>
cudaError_t describe(cudaStream_t stream, T* out, const Pick& pick) {
  PLEXUS_CUDART_TRY(check_pointer(out, "the address of the result"));
  std::shared_ptr<Stream> found;
  PLEXUS_CUDART_TRY(Runtime::instance().streams.find(stream, &found));
  *out = pick(*found);
  return cudaSuccess;
}

cudaError_t call_back(cudaStream_t stream, std::function<void()> function) {
  Runtime& runtime = Runtime::instance();
  if (!runtime.checks) {
    return runtime.streams.enqueue_work(stream, &runtime.host_functions, std::move(function),
                                        cudaGraphNodeTypeHost);
  }
  // The function may tell the program that what comes before it is done.
  return runtime.streams.enqueue(
      stream, cudaGraphNodeTypeHost, [&runtime, function](cudaStream_t handle) -> cudaError_t {
        plexusEvent_t before = nullptr;
        PLEXUS_CUDART_TRY(error_of(plexusEventCreate(&before)));
        static_cast<void>(plexusEventRecord(before, handle));
        return issue_work(handle, &runtime.host_functions, [before, function] {
          static_cast<void>(plexusEventSynchronize(before));
          static_cast<void>(plexusEventDestroy(before));
          function();
        });
      });
}

// ---- core/device/virtual_devices.h ----

int count_devices() { return Runtime::instance().device_count(); }
CUstream_st* find_stream(CUstream_st* stream, int device) {
  return Runtime::instance().streams.find_behind(stream, device);
}
void before_work(CUstream_st* stream) { Runtime::instance().streams.before_work(stream); }
int is_captured(CUstream_st* stream) {
  return Runtime::instance().streams.is_captured(stream) ? 1 : 0;
}
void capture(CUstream_st* stream, plexusCaptured_t* calls) {
  Runtime::instance().streams.capture(stream, calls);
}

int find_memory(const void* address, int device, plexusMemoryFacts* facts) {
  const auto found = Runtime::instance().memory.find(address);
  if (!found.has_value()) {
    return 0;
  }
  const bool is_others = found->kind == MemoryKind::kDevice && found->device != device;
  *facts = {.data = found->data,
            .size_bytes = found->size_bytes,
            .device = found->device,
            .is_reachable = !is_others || has_opened_peer(device, found->device) ? 1 : 0};
  return 1;
}

constexpr plexusVirtualDevices kDevices = {.count = count_devices,
                                           .current = current_device,
                                           .find_stream = find_stream,
                                           .before_work = before_work,
                                           .is_captured = is_captured,
                                           .capture = capture,
                                           .find_memory = find_memory};

/// When the library is loaded, so that no communicator comes before.
[[gnu::constructor]] void tell_plexus() { plexusUseVirtualDevices(&kDevices); }

}  // namespace
}  // namespace plexus::cudart

using namespace plexus::cudart;  // NOLINT(google-build-using-namespace): as all of this file

PLEXUS_CUDART cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  return call("cudaStreamCreate", [&] { return create(stream, cudaStreamDefault, 0); });
}
PLEXUS_CUDART cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  return call("cudaStreamCreateWithFlags", [&] { return create(stream, flags, 0); });
}
PLEXUS_CUDART cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream,
                                                       unsigned flags,
                                                       int priority) {
  return call("cudaStreamCreateWithPriority", [&] { return create(stream, flags, priority); });
}
PLEXUS_CUDART cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  return call("cudaStreamDestroy", [&] { return Runtime::instance().streams.destroy(stream); });
}
PLEXUS_CUDART cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  return call("cudaStreamSynchronize",
              [&] { return Runtime::instance().streams.synchronize(stream); });
}
PLEXUS_CUDART cudaError_t cudaStreamQuery(cudaStream_t stream) {
  return call("cudaStreamQuery", [&] { return Runtime::instance().streams.query(stream); });
}
PLEXUS_CUDART cudaError_t cudaStreamGetFlags(cudaStream_t stream, unsigned* flags) {
  return call("cudaStreamGetFlags", [&] {
    return describe(stream, flags, [](const Stream& each) { return each.flags; });
  });
}
PLEXUS_CUDART cudaError_t cudaStreamGetPriority(cudaStream_t stream, int* priority) {
  return call("cudaStreamGetPriority", [&] {
    return describe(stream, priority, [](const Stream& each) { return each.priority; });
  });
}
PLEXUS_CUDART cudaError_t cudaStreamGetId(cudaStream_t stream, unsigned long long* id) {
  return call("cudaStreamGetId",
              [&] { return describe(stream, id, [](const Stream& each) { return each.id; }); });
}
PLEXUS_CUDART cudaError_t cudaStreamGetDevice(cudaStream_t stream, int* device) {
  return call("cudaStreamGetDevice", [&] {
    return describe(stream, device, [](const Stream& each) { return each.device; });
  });
}
PLEXUS_CUDART cudaError_t cudaStreamAddCallback(cudaStream_t stream,
                                                cudaStreamCallback_t callback,
                                                void* user,
                                                unsigned flags) {
  return call("cudaStreamAddCallback", [&]() -> cudaError_t {
    if (callback == nullptr || flags != 0) {
      return refuse(cudaErrorInvalidValue, "callback must be set and flags 0");
    }
    return call_back(stream, [=] { callback(stream, cudaSuccess, user); });
  });
}
PLEXUS_CUDART cudaError_t cudaLaunchHostFunc(cudaStream_t stream,
                                             cudaHostFn_t function,
                                             void* user) {
  return call("cudaLaunchHostFunc", [&]() -> cudaError_t {
    PLEXUS_CUDART_TRY(check_pointer(reinterpret_cast<const void*>(function), "function"));
    return call_back(stream, [=] { function(user); });
  });
}
PLEXUS_CUDART cudaError_t cudaStreamAttachMemAsync(cudaStream_t stream,
                                                   void* memory,
                                                   size_t /*bytes*/,
                                                   unsigned /*flags*/) {
  return call("cudaStreamAttachMemAsync", [&]() -> cudaError_t {
    PLEXUS_CUDART_TRY(check_pointer(memory, "the memory"));
    return Runtime::instance().streams.check(stream);
  });
}
PLEXUS_CUDART cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  return call("cudaDeviceGetStreamPriorityRange", [&]() -> cudaError_t {
    if (least != nullptr) {
      *least = kLeastPriority;
    }
    if (greatest != nullptr) {
      *greatest = kGreatestPriority;
    }
    return cudaSuccess;
  });
}
