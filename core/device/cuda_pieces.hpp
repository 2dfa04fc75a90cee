// SPDX-License-Identifier: Apache-2.0
// Memory of cuMemCreate: made for ncclMemAlloc, found behind a user's address, exported to other
// processes by file descriptors and imported from them. The functions are the driver's, which are
// looked up. cuMemSetAccess and cuMemUnmap may wait for kernels.
//
//   PLEXUS_TRY(memory, pieces.allocate(0, std::array{0, 1}, size_bytes));
//   PLEXUS_TRY(found, CudaPieces::find(0, memory, size_bytes));
//   PLEXUS_TRY(exported, CudaPieces::export_all(0, found));  // another process imports them
//   pieces.unmap(memory);
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <span>

#include "core/device/device_runtime.hpp"

namespace plexus {

/// Threads: any. The device is current.
class CudaPieces {
 public:
  /// A piece on `device` that kernels of `readers` read and write.
  Result<void*> allocate(int device, std::span<const int> readers, size_t size_bytes);
  Result<void*> import(int device, const PieceDescriptors& theirs);
  /// False: `memory` is not from the functions above.
  bool unmap(void* memory) noexcept;
  /// Whether `address` is in memory of those functions.
  [[nodiscard]] bool contains(const void* address) const noexcept;

  /// Those of [pointer, pointer + size_bytes), whoever made them.
  static Result<Allocation> find(int device, const void* pointer, size_t size_bytes);
  static Result<std::unique_ptr<PieceDescriptors>> export_all(int device, const Allocation& memory);

 private:
  Result<void*> map(int device,
                    std::span<const int> readers,
                    std::span<const Allocation::Piece> pieces);

  mutable std::mutex mutex_;
  std::map<const std::byte*, size_t> mapped_;  // sizes, by first address; guarded by mutex_
};

}  // namespace plexus
