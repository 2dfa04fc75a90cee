// SPDX-License-Identifier: Apache-2.0
// Memory of cuMemCreate on the software device: memfds, which processes really pass to each other,
// and addresses that they are mapped at.
#pragma once

#include <memory>
#include <unistd.h>

#include "core/device/device_runtime.hpp"

namespace plexus::testing_device {

/// Lives as long as somebody has it mapped or holds its handle; a memfd lives longer by itself.
struct SoftwarePiece {
  /// `is_exportable`: made with a handle type of file descriptors.
  static Result<std::shared_ptr<SoftwarePiece>> create(size_t size_bytes, bool is_exportable);
  SoftwarePiece(int made, bool exportable) : fd(made), is_exportable(exportable) {}
  ~SoftwarePiece() { close(fd); }
  SoftwarePiece(const SoftwarePiece&) = delete;
  SoftwarePiece& operator=(const SoftwarePiece&) = delete;
  /// As a driver's, a number that another one gets afterwards.
  [[nodiscard]] uint64_t handle() const { return static_cast<uint64_t>(fd); }

  int fd;
  bool is_exportable;
};

/// Addresses, unmapped by the last owner: the software device's blocks.
using SoftwareMapping = std::shared_ptr<std::byte>;

/// Maps each after the one before. An Error: one of them has less memory than it says.
Result<std::vector<SoftwareMapping>> map_side_by_side(
    std::span<const PieceDescriptors::Piece> pieces);

}  // namespace plexus::testing_device
