// SPDX-License-Identifier: Apache-2.0
// The part of DeviceRuntime over CUDA that is about memory; cuda_runtime.cpp has the rest.
#pragma once

#include <atomic>
#include <cuda.h>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "core/device/cuda_calls.hpp"
#include "core/device/cuda_pieces.hpp"

namespace plexus {

class CudaMemory : public DeviceRuntime {
 public:
  Result<void*> allocate(int device, size_t size_bytes) override;
  Result<void*> allocate_lasting(int device, size_t size_bytes) override;
  Result<void*> allocate_piece(int device, size_t size_bytes) override;
  void release(int device, void* memory) noexcept override;
  Result<void*> allocate_pinned(int device, size_t size_bytes) override;
  void release_pinned(int device, void* memory) noexcept override;
  Result<void*> register_host(int device, void* memory, size_t size_bytes) override;
  void unregister_host(int device, void* memory) noexcept override;
  [[nodiscard]] PointerFacts describe_pointer(const void* pointer) noexcept override;
  [[nodiscard]] bool has_driver() noexcept override;
  [[nodiscard]] bool is_on_device_alone(const void* pointer) noexcept override;
  [[nodiscard]] bool is_open_to_peers(int /*device*/, const void* pointer) noexcept override;
  Result<void> copy(int device, void* to, const void* from, size_t size_bytes) override;
  Result<Allocation> find_allocation(int device, const void* pointer, size_t size_bytes) override;
  Result<MemoryHandle> export_memory(int device, void* memory) override;
  Result<void*> import_memory(int device, const MemoryHandle& handle) override;
  Result<std::unique_ptr<PieceDescriptors>> export_pieces(int device,
                                                          const Allocation& memory) override;
  Result<void*> import_pieces(int device, const PieceDescriptors& theirs) override;
  void close_imported(int device, void* memory) noexcept override;
  Result<Dmabuf> export_dmabuf(int device, void* memory, size_t size_bytes) override;

 protected:
  /// A stream that is independent of the user's streams. Requires that `device` is current.
  Result<cudaStream_t> own_stream(int device);

 private:
  using AttributeQuery = decltype(&cuPointerGetAttribute);
  AttributeQuery attribute_query() noexcept;
  bool is_plain(const void* pointer) noexcept;
  Result<void*> allocate_rounded(int device, size_t size_bytes, bool lasting);
  void* take_spare(int device, size_t rounded);
  Result<void> clear(int device, void* memory, size_t size_bytes);

  std::atomic<AttributeQuery> attribute_query_{nullptr};
  CudaPieces pieces_;
  std::mutex mutex_;
  std::map<int, cudaStream_t> streams_;  // guarded by mutex_; they live as long as the process
  struct Size {
    size_t rounded;
    bool lasting;
  };
  std::map<void*, Size> sizes_;  // allocations in use; guarded by mutex_
  std::map<std::pair<int, size_t>, std::vector<void*>> spare_;  // guarded by mutex_
};

}  // namespace plexus
