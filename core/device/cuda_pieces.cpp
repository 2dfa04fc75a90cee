// SPDX-License-Identifier: Apache-2.0
#include "core/device/cuda_pieces.hpp"

#include <array>
#include <cuda.h>
#include <fcntl.h>
#include <iterator>
#include <utility>
#include <vector>

#include "core/base/stdio_held.hpp"
#include "core/base/units.hpp"
#include "core/device/cuda_calls.hpp"

namespace plexus {
namespace {

constexpr auto kByDescriptor = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;

CUdeviceptr address_of(const void* pointer) { return reinterpret_cast<CUdeviceptr>(pointer); }
void* pointer_of(CUdeviceptr address) {
  return reinterpret_cast<void*>(address);  // NOLINT(performance-no-int-to-ptr): the driver's way
}

/// Calls function `name` of the driver.
template <class Function, class... Arguments>
Result<void> call(int device, const char* name, Arguments... arguments) {
  PLEXUS_TRY(function, driver_function<Function>(name));
  const CUresult code = function(arguments...);
  if (code != CUDA_SUCCESS) {
    return fail(Code::kUnhandledCudaError, "{} failed on cuda:{} (error {})", name, device,
                static_cast<int>(code));
  }
  return ok();
}
#define PLEXUS_DRIVER(device, name, ...) call<decltype(&name)>(device, #name, __VA_ARGS__)

/// A handle that this process has taken once more, or made.
class Handle {
 public:
  Handle(int device, CUmemGenericAllocationHandle handle) : device_(device), handle_(handle) {}
  ~Handle() {
    if (device_ >= 0) {
      static_cast<void>(PLEXUS_DRIVER(device_, cuMemRelease, handle_));
    }
  }
  Handle(Handle&& other) noexcept
      : device_(std::exchange(other.device_, -1)), handle_(other.handle_) {}
  Handle& operator=(Handle&&) = delete;

  [[nodiscard]] CUmemGenericAllocationHandle get() const { return handle_; }

 private:
  int device_;  // -1: moved from
  CUmemGenericAllocationHandle handle_;
};

Result<Handle> retain(int device, CUdeviceptr address) {
  CUmemGenericAllocationHandle handle = 0;
  if (PLEXUS_DRIVER(device, cuMemRetainAllocationHandle, &handle, pointer_of(address))
          .has_error()) {
    return fail(Code::kUnhandledCudaError,
                "{} on cuda:{} is memory neither of cudaMalloc nor of cuMemCreate (but of a pool, "
                "for example), which alone other processes open",
                pointer_of(address), device);
  }
  return Handle(device, handle);
}

struct Exported final : PieceDescriptors {
  std::vector<Handle> handles;  // so that no other piece gets their numbers
};

}  // namespace

Result<void*> CudaPieces::allocate(int device, std::span<const int> readers, size_t size_bytes) {
  CUmemAllocationProp wish = {};
  wish.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  wish.requestedHandleTypes = kByDescriptor;
  wish.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device};
  int for_nics = 0;
  PLEXUS_TRY(PLEXUS_DRIVER(device, cuDeviceGetAttribute, &for_nics,
                           CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED, device));
  wish.allocFlags.gpuDirectRDMACapable = for_nics != 0 ? 1 : 0;
  size_t granule = 0;
  PLEXUS_TRY(PLEXUS_DRIVER(device, cuMemGetAllocationGranularity, &granule, &wish,
                           CU_MEM_ALLOC_GRANULARITY_RECOMMENDED));
  const size_t whole_bytes = align_up(size_bytes, granule);
  CUmemGenericAllocationHandle made = 0;
  PLEXUS_TRY(PLEXUS_DRIVER(device, cuMemCreate, &made, whole_bytes, &wish, 0ULL));
  const Handle handle(device, made);  // the mapping keeps the memory
  return map(device, readers, std::array{Allocation::Piece{whole_bytes, made}});
}

Result<void*> CudaPieces::import(int device, const PieceDescriptors& theirs) {
  std::vector<Handle> handles;
  std::vector<Allocation::Piece> taken;
  for (const PieceDescriptors::Piece& piece : theirs.pieces) {
    CUmemGenericAllocationHandle handle = 0;
    PLEXUS_TRY(PLEXUS_DRIVER(device, cuMemImportFromShareableHandle, &handle,
                             pointer_of(static_cast<CUdeviceptr>(piece.fd)), kByDescriptor));
    handles.emplace_back(device, handle);
    taken.push_back({piece.size_bytes, handle});
  }
  return map(device, std::array{device}, taken);
}

Result<void*> CudaPieces::map(int device,
                              std::span<const int> readers,
                              std::span<const Allocation::Piece> pieces) {
  size_t whole_bytes = 0;
  for (const Allocation::Piece& piece : pieces) {
    whole_bytes += piece.size_bytes;
  }
  CUdeviceptr base = 0;
  PLEXUS_TRY(PLEXUS_DRIVER(device, cuMemAddressReserve, &base, whole_bytes, size_t{0},
                           CUdeviceptr{0}, 0ULL));
  size_t mapped_bytes = 0;
  const auto fill = [&]() -> Result<void> {
    for (const Allocation::Piece& piece : pieces) {
      PLEXUS_TRY(PLEXUS_DRIVER(device, cuMemMap, base + mapped_bytes, piece.size_bytes, size_t{0},
                               piece.id, 0ULL));
      mapped_bytes += piece.size_bytes;
    }
    std::vector<CUmemAccessDesc> access;
    for (const int reader : readers) {
      access.push_back({.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = reader},
                        .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE});
    }
    return PLEXUS_DRIVER(device, cuMemSetAccess, base, whole_bytes, access.data(), access.size());
  };
  if (auto filled = fill(); filled.has_error()) {
    if (mapped_bytes > 0) {
      static_cast<void>(PLEXUS_DRIVER(device, cuMemUnmap, base, mapped_bytes));
    }
    static_cast<void>(PLEXUS_DRIVER(device, cuMemAddressFree, base, whole_bytes));
    return std::move(filled).error();
  }
  void* const memory = pointer_of(base);
  const std::lock_guard lock(mutex_);
  mapped_.emplace(static_cast<const std::byte*>(memory), whole_bytes);
  return memory;
}

bool CudaPieces::unmap(void* memory) noexcept {
  size_t whole_bytes = 0;
  {
    const std::lock_guard lock(mutex_);
    const auto at = mapped_.find(static_cast<const std::byte*>(memory));
    if (at == mapped_.end()) {
      return false;
    }
    whole_bytes = at->second;
    mapped_.erase(at);
  }
  static_cast<void>(PLEXUS_DRIVER(0, cuMemUnmap, address_of(memory), whole_bytes));
  static_cast<void>(PLEXUS_DRIVER(0, cuMemAddressFree, address_of(memory), whole_bytes));
  return true;
}

bool CudaPieces::contains(const void* address) const noexcept {
  const auto* const first = static_cast<const std::byte*>(address);
  const std::lock_guard lock(mutex_);
  const auto after = mapped_.upper_bound(first);
  return after != mapped_.begin() && first < std::prev(after)->first + std::prev(after)->second;
}

Result<Allocation> CudaPieces::find(int device, const void* pointer, size_t size_bytes) {
  Allocation found;
  const CUdeviceptr end = address_of(pointer) + size_bytes;
  CUdeviceptr next = address_of(pointer);
  do {
    CUdeviceptr first = 0;
    size_t piece_bytes = 0;
    PLEXUS_TRY(handle, retain(device, next));
    PLEXUS_TRY(PLEXUS_DRIVER(device, cuMemGetAddressRange, &first, &piece_bytes, next));
    if (found.base == nullptr) {
      found.base = static_cast<std::byte*>(pointer_of(first));
    } else if (first != next || found.pieces.size() == kPiecesMax) {
      return fail(Code::kUnhandledCudaError,
                  "the {} bytes at {} on cuda:{} are of more than {} pieces of cuMemCreate",
                  size_bytes, pointer, device, kPiecesMax);
    }
    found.pieces.push_back({piece_bytes, handle.get()});
    found.size_bytes += piece_bytes;
    next = first + piece_bytes;
  } while (next < end);
  return found;
}

Result<std::unique_ptr<PieceDescriptors>> CudaPieces::export_all(int device,
                                                                 const Allocation& memory) {
  auto exported = std::make_unique<Exported>();
  exported->pieces.reserve(memory.pieces.size());
  CUdeviceptr at = address_of(memory.base);
  for (const Allocation::Piece& piece : memory.pieces) {
    PLEXUS_TRY(handle, retain(device, at));
    CUmemAllocationProp facts = {};
    PLEXUS_TRY(PLEXUS_DRIVER(device, cuMemGetAllocationPropertiesFromHandle, &facts, handle.get()));
    if ((facts.requestedHandleTypes & kByDescriptor) == 0 || facts.location.id != device ||
        handle.get() != piece.id) {
      return fail(Code::kUnhandledCudaError,
                  "{} on cuda:{} cannot be exported: it was made by cuMemCreate without a handle "
                  "type of file descriptors, or on another device",
                  pointer_of(at), device);
    }
    Result<void> made = ok();
    const int fd = open_above_stdio([&] {
      int opened = -1;
      made = PLEXUS_DRIVER(device, cuMemExportToShareableHandle, static_cast<void*>(&opened),
                           handle.get(), kByDescriptor, 0ULL);
      return opened;
    });
    PLEXUS_TRY(std::move(made));
    if (fd < 0 || fcntl(fd, F_SETFD, FD_CLOEXEC) != 0) {
      return fail(Code::kSystemError, "there is no descriptor left for memory of cuda:{}", device);
    }
    exported->pieces.push_back({piece.size_bytes, fd});
    exported->handles.push_back(std::move(handle));
    at += piece.size_bytes;
  }
  return std::unique_ptr<PieceDescriptors>(std::move(exported));
}

#undef PLEXUS_DRIVER

}  // namespace plexus
