// SPDX-License-Identifier: Apache-2.0
#include "core/device/cuda_memory.hpp"

#include <bit>
#include <cstring>
#include <dlfcn.h>

namespace plexus {
namespace {

/// The driver that is loaded, which is never closed; nullptr: none, or one over host memory
/// (integrations/cudart).
void* find_driver() noexcept {
  void* const driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
  return driver == nullptr || dlsym(driver, "plexusVirtualDriver") != nullptr ? nullptr : driver;
}

// cudaFree waits for all kernels of the device, and one of them may wait for a launch that its
// caller has not made yet. Memory that plans release is therefore kept for later plans; only
// sizes that are multiples of kExportGranule, which belong to a communicator or user, are freed.
size_t rounded_size(size_t size_bytes) {
  return size_bytes % kExportGranule == 0 ? size_bytes : std::bit_ceil(size_bytes);
}

}  // namespace

Result<void*> CudaMemory::allocate(int device, size_t size_bytes) {
  return allocate_rounded(device, size_bytes, false);
}

Result<void*> CudaMemory::allocate_lasting(int device, size_t size_bytes) {
  return allocate_rounded(device, size_bytes, true);
}

Result<void*> CudaMemory::allocate_piece(int device, size_t size_bytes) {
  const OnDevice on(device);
  PLEXUS_TRY(own_stream(device));  // creates the context
  PLEXUS_TRY(devices, count());
  std::vector<int> readers;
  for (int reader = 0; reader < devices; ++reader) {
    PLEXUS_TRY(reaches, can_reach(reader, device));
    if (reaches) {
      readers.push_back(reader);
    }
  }
  PLEXUS_TRY(memory, pieces_.allocate(device, readers, size_bytes));
  auto cleared = clear(device, memory, size_bytes);
  if (cleared.has_error()) {
    pieces_.unmap(memory);
    return std::move(cleared).error();
  }
  return memory;
}

void CudaMemory::release(int device, void* memory) noexcept {
  if (pieces_.contains(memory)) {
    const OnDevice on(device);
    pieces_.unmap(memory);
    return;
  }
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

Result<void*> CudaMemory::allocate_pinned(int device, size_t size_bytes) {
  const OnDevice on(device);
  void* memory = nullptr;
  PLEXUS_TRY(check(cudaHostAlloc(&memory, size_bytes, cudaHostAllocPortable | cudaHostAllocMapped),
                   "cudaHostAlloc", device));
  std::memset(memory, 0, size_bytes);
  return memory;
}

void CudaMemory::release_pinned(int device, void* memory) noexcept {
  const OnDevice on(device);
  static_cast<void>(cudaFreeHost(memory));
}

Result<void*> CudaMemory::register_host(int device, void* memory, size_t size_bytes) {
  const OnDevice on(device);
  PLEXUS_TRY(
      check(cudaHostRegister(memory, size_bytes, cudaHostRegisterPortable | cudaHostRegisterMapped),
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

void CudaMemory::unregister_host(int device, void* memory) noexcept {
  const OnDevice on(device);
  static_cast<void>(cudaHostUnregister(memory));
}

PointerFacts CudaMemory::describe_pointer(const void* pointer) noexcept {
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

bool CudaMemory::has_driver() noexcept { return attribute_query() != nullptr; }

bool CudaMemory::is_on_device_alone(const void* pointer) noexcept {
  const auto query = attribute_query();
  const auto address = reinterpret_cast<CUdeviceptr>(pointer);
  unsigned int kind = 0;
  void* seen_at = nullptr;
  return query != nullptr &&
         query(&kind, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address) == CUDA_SUCCESS &&
         kind == CU_MEMORYTYPE_DEVICE &&
         query(&seen_at, CU_POINTER_ATTRIBUTE_HOST_POINTER, address) != CUDA_SUCCESS;
}

bool CudaMemory::is_open_to_peers(int /*device*/, const void* pointer) noexcept {
  return is_plain(pointer) || pieces_.contains(pointer);
}

Result<void> CudaMemory::copy(int device, void* to, const void* from, size_t size_bytes) {
  const OnDevice on(device);
  PLEXUS_TRY(stream, own_stream(device));
  PLEXUS_TRY(check(cudaMemcpyAsync(to, from, size_bytes, cudaMemcpyDefault, stream),
                   "cudaMemcpyAsync", device));
  return check(cudaStreamSynchronize(stream), "cudaStreamSynchronize", device);
}

Result<Allocation> CudaMemory::find_allocation(int device, const void* pointer, size_t size_bytes) {
  const PointerFacts facts = describe_pointer(pointer);
  if (facts.place != PointerFacts::Place::kDevice || facts.device != device) {
    return fail(Code::kInvalidArgument, "{} is not memory of cuda:{}", pointer, device);
  }
  if (!is_plain(pointer)) {
    const OnDevice on(device);
    return CudaPieces::find(device, pointer, size_bytes);
  }
  PLEXUS_TRY(get_range, driver_function<decltype(&cuMemGetAddressRange)>("cuMemGetAddressRange"));
  PLEXUS_TRY(get_attribute,
             driver_function<decltype(&cuPointerGetAttribute)>("cuPointerGetAttribute"));
  const OnDevice on(device);
  const auto address = reinterpret_cast<CUdeviceptr>(pointer);
  CUdeviceptr base = 0;
  size_t whole_bytes = 0;
  unsigned long long id = 0;
  if (get_range(&base, &whole_bytes, address) != CUDA_SUCCESS ||
      get_attribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, address) != CUDA_SUCCESS) {
    return fail(Code::kUnhandledCudaError, "cuda:{} cannot find the allocation that contains {}",
                device, pointer);
  }
  // NOLINTNEXTLINE(performance-no-int-to-ptr): so the driver names memory
  return Allocation{
      .base = reinterpret_cast<std::byte*>(base), .size_bytes = whole_bytes, .id = id};
}

Result<MemoryHandle> CudaMemory::export_memory(int device, void* memory) {
  const OnDevice on(device);
  cudaIpcMemHandle_t handle{};
  PLEXUS_TRY(check(cudaIpcGetMemHandle(&handle, memory), "cudaIpcGetMemHandle", device));
  MemoryHandle made;
  static_assert(sizeof(handle) == sizeof(made.bytes));
  std::memcpy(made.bytes.data(), &handle, sizeof(handle));
  return made;
}

Result<void*> CudaMemory::import_memory(int device, const MemoryHandle& handle) {
  const OnDevice on(device);
  cudaIpcMemHandle_t theirs{};
  std::memcpy(&theirs, handle.bytes.data(), sizeof(theirs));
  void* memory = nullptr;
  PLEXUS_TRY(check(cudaIpcOpenMemHandle(&memory, theirs, cudaIpcMemLazyEnablePeerAccess),
                   "cudaIpcOpenMemHandle", device));
  return memory;
}

Result<std::unique_ptr<PieceDescriptors>> CudaMemory::export_pieces(int device,
                                                                    const Allocation& memory) {
  const OnDevice on(device);
  return CudaPieces::export_all(device, memory);
}

Result<void*> CudaMemory::import_pieces(int device, const PieceDescriptors& theirs) {
  const OnDevice on(device);
  return pieces_.import(device, theirs);
}

void CudaMemory::close_imported(int device, void* memory) noexcept {
  const OnDevice on(device);
  if (!pieces_.unmap(memory)) {
    static_cast<void>(cudaIpcCloseMemHandle(memory));
  }
}

Result<Dmabuf> CudaMemory::export_dmabuf(int device, void* memory, size_t size_bytes) {
  PLEXUS_TRY(get_handle, driver_function<decltype(&cuMemGetHandleForAddressRange)>(
                             "cuMemGetHandleForAddressRange"));
  const OnDevice on(device);
  Dmabuf made;
  const CUresult code = get_handle(&made.fd, reinterpret_cast<CUdeviceptr>(memory), size_bytes,
                                   CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0);
  if (code != CUDA_SUCCESS) {
    return fail(Code::kUnhandledCudaError, "cuda:{} cannot export {} bytes as a dma-buf (error {})",
                device, size_bytes, static_cast<int>(code));
  }
  return made;
}

/// nullptr: no driver is loaded in this process, which this does not change.
CudaMemory::AttributeQuery CudaMemory::attribute_query() noexcept {
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

/// Not memory of pools and of cuMemCreate.
bool CudaMemory::is_plain(const void* pointer) noexcept {
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

Result<void*> CudaMemory::allocate_rounded(int device, size_t size_bytes, bool lasting) {
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

void* CudaMemory::take_spare(int device, size_t rounded) {
  const std::lock_guard lock(mutex_);
  auto& spare = spare_[{device, rounded}];
  if (spare.empty()) {
    return nullptr;
  }
  void* const memory = spare.back();
  spare.pop_back();
  return memory;
}

Result<void> CudaMemory::clear(int device, void* memory, size_t size_bytes) {
  PLEXUS_TRY(stream, own_stream(device));
  PLEXUS_TRY(check(cudaMemsetAsync(memory, 0, size_bytes, stream), "cudaMemsetAsync", device));
  return check(cudaStreamSynchronize(stream), "cudaStreamSynchronize", device);
}

Result<cudaStream_t> CudaMemory::own_stream(int device) {
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

}  // namespace plexus
