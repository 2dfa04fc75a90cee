// SPDX-License-Identifier: Apache-2.0
// The functions of the CUDA runtime that allocate, free and describe memory.
#include <algorithm>

#include "core/base/units.hpp"
#include "integrations/cudart/call.hpp"
#include "integrations/cudart/include/cuda_runtime_api.h"
#include "integrations/cudart/runtime.hpp"

namespace plexus::cudart {
namespace {

constexpr size_t kPitch = 512;

cudaError_t allocate(void** memory, size_t bytes, MemoryKind kind, unsigned flags = 0) {
  PLEXUS_CUDART_TRY(check_pointer(memory, "the address of the pointer"));
  *memory = nullptr;
  PLEXUS_CUDART_TRY(check_device(current_device()));
  return Runtime::instance().memory.allocate(
      {.size_bytes = bytes, .kind = kind, .device = current_device(), .flags = flags}, memory);
}

/// As CUDA: what still uses the memory is done before it goes.
cudaError_t release(void* memory, std::initializer_list<MemoryKind> kinds) {
  if (memory == nullptr) {
    return cudaSuccess;
  }
  Runtime& runtime = Runtime::instance();
  const auto found = runtime.memory.find(memory);
  if (runtime.checks) {
    const bool is_whole = found.has_value() && found->data == memory;
    static_cast<void>(
        plexusNoteFree(current_function(), nullptr, memory, is_whole ? found->size_bytes : 0));
  }
  if (found.has_value()) {
    runtime.streams.wait_device(found->device);
  }
  return runtime.memory.release(memory, kinds);
}

cudaError_t allocate_pitched(void** memory, size_t* pitch, size_t width, size_t height) {
  PLEXUS_CUDART_TRY(check_pointer(pitch, "pitch"));
  size_t bytes = 0;
  if (width > SIZE_MAX - kPitch ||
      __builtin_mul_overflow(align_up(width, kPitch), height, &bytes)) {
    return refuse(cudaErrorMemoryAllocation, "{} rows of {} bytes exceed the address space", height,
                  width);
  }
  *pitch = align_up(width, kPitch);
  return allocate(memory, bytes, MemoryKind::kDevice);
}

cudaError_t describe(cudaPointerAttributes* attributes, const void* pointer) {
  PLEXUS_CUDART_TRY(check_pointer(attributes, "attributes"));
  PLEXUS_CUDART_TRY(check_device(current_device()));
  *attributes = {};
  void* const address = const_cast<void*>(pointer);  // NOLINT(*-const-cast): CUDA's interface
  const auto found = Runtime::instance().memory.find(pointer);
  if (!found.has_value()) {
    attributes->type = cudaMemoryTypeUnregistered;
    attributes->device = cudaInvalidDeviceId;
    attributes->hostPointer = address;
    return cudaSuccess;
  }
  attributes->device = found->device;
  attributes->devicePointer = address;
  if (found->is_host()) {
    attributes->type = cudaMemoryTypeHost;
    attributes->hostPointer = address;
  } else if (found->kind == MemoryKind::kManaged) {
    attributes->type = cudaMemoryTypeManaged;
    attributes->hostPointer = address;
  } else {
    attributes->type = cudaMemoryTypeDevice;
  }
  return cudaSuccess;
}

cudaError_t register_host(void* memory, size_t bytes, unsigned flags) {
  PLEXUS_CUDART_TRY(check_pointer(memory, "the memory"));
  constexpr unsigned kFlags = cudaHostRegisterPortable | cudaHostRegisterMapped |
                              cudaHostRegisterIoMemory | cudaHostRegisterReadOnly;
  if (bytes == 0 || (flags & ~kFlags) != 0) {
    return refuse(cudaErrorInvalidValue, "{} bytes with flags {:#x} cannot be registered", bytes,
                  flags);
  }
  PLEXUS_CUDART_TRY(check_device(current_device()));
  return Runtime::instance().memory.add_host({.data = static_cast<std::byte*>(memory),
                                              .size_bytes = bytes,
                                              .kind = MemoryKind::kRegistered,
                                              .device = current_device(),
                                              .flags = flags});
}

cudaError_t find_host(const void* host, Allocation* found) {
  const auto allocation = Runtime::instance().memory.find(host);
  if (!allocation.has_value() || !allocation->is_host()) {
    return refuse(cudaErrorInvalidValue, "{} is not host memory that CUDA allocated or registered",
                  fmt::ptr(host));
  }
  *found = *allocation;
  return cudaSuccess;
}

cudaError_t release_in_order(void* memory, cudaStream_t stream) {
  if (memory == nullptr) {
    return cudaSuccess;
  }
  Runtime& runtime = Runtime::instance();
  const auto found = runtime.memory.find(memory);
  if (!found.has_value() || found->data != memory || found->kind != MemoryKind::kDevice) {
    return refuse(cudaErrorInvalidValue, "{} is not the start of memory of a device",
                  fmt::ptr(memory));
  }
  const auto free = [memory] {
    static_cast<void>(Runtime::instance().memory.release(memory, {MemoryKind::kDevice}));
  };
  return runtime.streams.enqueue(
      stream, cudaGraphNodeTypeMemFree,
      [&runtime, memory, size_bytes = found->size_bytes, free](cudaStream_t handle) {
        if (runtime.checks) {
          static_cast<void>(plexusNoteFree(current_function(), handle, memory, size_bytes));
        }
        return issue_work(handle, &runtime.copies, free);
      });
}

}  // namespace
}  // namespace plexus::cudart

using namespace plexus::cudart;  // NOLINT(google-build-using-namespace): as all of this file

PLEXUS_CUDART cudaError_t cudaMalloc(void** memory, size_t bytes) {
  return call("cudaMalloc", [&] { return allocate(memory, bytes, MemoryKind::kDevice); });
}
PLEXUS_CUDART cudaError_t cudaMallocPitch(void** memory,
                                          size_t* pitch,
                                          size_t width,
                                          size_t height) {
  return call("cudaMallocPitch", [&] { return allocate_pitched(memory, pitch, width, height); });
}
PLEXUS_CUDART cudaError_t cudaMalloc3D(cudaPitchedPtr* memory, cudaExtent extent) {
  return call("cudaMalloc3D", [&]() -> cudaError_t {
    PLEXUS_CUDART_TRY(check_pointer(memory, "the memory"));
    size_t rows = 0;
    if (__builtin_mul_overflow(extent.height, extent.depth, &rows)) {
      return refuse(cudaErrorMemoryAllocation, "the extent exceeds the address space");
    }
    *memory = {.ptr = nullptr, .pitch = 0, .xsize = extent.width, .ysize = extent.height};
    return allocate_pitched(&memory->ptr, &memory->pitch, extent.width, rows);
  });
}
PLEXUS_CUDART cudaError_t cudaMallocManaged(void** memory, size_t bytes, unsigned flags) {
  return call("cudaMallocManaged", [&]() -> cudaError_t {
    if (bytes == 0 || (flags != cudaMemAttachGlobal && flags != cudaMemAttachHost)) {
      return refuse(cudaErrorInvalidValue, "{} bytes with flags {:#x} cannot be allocated", bytes,
                    flags);
    }
    return allocate(memory, bytes, MemoryKind::kManaged, flags);
  });
}
PLEXUS_CUDART cudaError_t cudaMallocHost(void** memory, size_t bytes) {
  return call("cudaMallocHost", [&] { return allocate(memory, bytes, MemoryKind::kHost); });
}
PLEXUS_CUDART cudaError_t cudaHostAlloc(void** memory, size_t bytes, unsigned flags) {
  return call("cudaHostAlloc", [&]() -> cudaError_t {
    constexpr unsigned kFlags =
        cudaHostAllocPortable | cudaHostAllocMapped | cudaHostAllocWriteCombined;
    if ((flags & ~kFlags) != 0) {
      return refuse(cudaErrorInvalidValue, "the flags are {:#x}", flags);
    }
    return allocate(memory, bytes, MemoryKind::kHost, flags);
  });
}
PLEXUS_CUDART cudaError_t cudaFree(void* memory) {
  return call("cudaFree", [&] {
    return release(memory, {MemoryKind::kDevice, MemoryKind::kManaged});
  });
}
PLEXUS_CUDART cudaError_t cudaFreeHost(void* memory) {
  return call("cudaFreeHost", [&] { return release(memory, {MemoryKind::kHost}); });
}
PLEXUS_CUDART cudaError_t cudaHostRegister(void* memory, size_t bytes, unsigned flags) {
  return call("cudaHostRegister", [&] { return register_host(memory, bytes, flags); });
}
PLEXUS_CUDART cudaError_t cudaHostUnregister(void* memory) {
  return call("cudaHostUnregister", [&]() -> cudaError_t {
    PLEXUS_CUDART_TRY(check_pointer(memory, "the memory"));
    const auto found = Runtime::instance().memory.find(memory);
    if (!found.has_value() || found->kind != MemoryKind::kRegistered || found->data != memory) {
      return refuse(cudaErrorHostMemoryNotRegistered, "{} is not registered", fmt::ptr(memory));
    }
    return release(memory, {MemoryKind::kRegistered});
  });
}
PLEXUS_CUDART cudaError_t cudaHostGetDevicePointer(void** device, void* host, unsigned /*flags*/) {
  return call("cudaHostGetDevicePointer", [&]() -> cudaError_t {
    PLEXUS_CUDART_TRY(check_pointer(device, "the address of the pointer"));
    Allocation found;
    PLEXUS_CUDART_TRY(find_host(host, &found));
    *device = host;
    return cudaSuccess;
  });
}
PLEXUS_CUDART cudaError_t cudaHostGetFlags(unsigned* flags, void* host) {
  return call("cudaHostGetFlags", [&]() -> cudaError_t {
    PLEXUS_CUDART_TRY(check_pointer(flags, "flags"));
    Allocation found;
    PLEXUS_CUDART_TRY(find_host(host, &found));
    *flags = found.flags | cudaHostAllocMapped;
    return cudaSuccess;
  });
}
PLEXUS_CUDART cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  return call("cudaMemGetInfo", [&]() -> cudaError_t {
    PLEXUS_CUDART_TRY(check_pointer(free, "free"));
    PLEXUS_CUDART_TRY(check_pointer(total, "total"));
    PLEXUS_CUDART_TRY(check_device(current_device()));
    *free = Runtime::instance().memory.free_bytes(current_device());
    *total = Runtime::instance().memory.total_bytes();
    return cudaSuccess;
  });
}
PLEXUS_CUDART cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes,
                                                   const void* pointer) {
  return call("cudaPointerGetAttributes", [&] { return describe(attributes, pointer); });
}
PLEXUS_CUDART cudaError_t cudaMallocAsync(void** memory, size_t bytes, cudaStream_t stream) {
  return call("cudaMallocAsync", [&]() -> cudaError_t {
    PLEXUS_CUDART_TRY(Runtime::instance().streams.check(stream));
    return allocate(memory, bytes, MemoryKind::kDevice);
  });
}
PLEXUS_CUDART cudaError_t cudaFreeAsync(void* memory, cudaStream_t stream) {
  return call("cudaFreeAsync", [&] { return release_in_order(memory, stream); });
}
PLEXUS_CUDART cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t* handle, void* memory) {
  return call("cudaIpcGetMemHandle", [&]() -> cudaError_t {
    PLEXUS_CUDART_TRY(check_pointer(handle, "handle"));
    return Runtime::instance().memory.make_handle(memory, handle);
  });
}
PLEXUS_CUDART cudaError_t cudaIpcOpenMemHandle(void** memory,
                                               cudaIpcMemHandle_t handle,
                                               unsigned flags) {
  return call("cudaIpcOpenMemHandle", [&]() -> cudaError_t {
    PLEXUS_CUDART_TRY(check_pointer(memory, "the address of the pointer"));
    *memory = nullptr;
    if (flags != cudaIpcMemLazyEnablePeerAccess) {
      return refuse(cudaErrorInvalidValue, "flags must be cudaIpcMemLazyEnablePeerAccess");
    }
    PLEXUS_CUDART_TRY(check_device(current_device()));
    return Runtime::instance().memory.open_ipc(handle, current_device(), memory);
  });
}
PLEXUS_CUDART cudaError_t cudaIpcCloseMemHandle(void* memory) {
  return call("cudaIpcCloseMemHandle", [&]() -> cudaError_t {
    Runtime::instance().streams.wait_device(current_device());
    return Runtime::instance().memory.close_ipc(memory);
  });
}
