// SPDX-License-Identifier: Apache-2.0
// Pieces of device memory (cuMemCreate) from one process to another: their descriptors are there
// to be asked for at the owner's MemoryServer.
//
//   PLEXUS_TRY(offered, OfferedPieces::offer(std::move(exported)));
//   message.first_id = offered->first_id();  // and in the other process:
//   PLEXUS_TRY(theirs, take_pieces(message));
#pragma once

#include <cstdint>
#include <memory>

#include "core/device/device_runtime.hpp"
#include "core/transport/memory/mapping_message.hpp"

namespace plexus {

/// Peers get them as long as it lives. Threads: any.
class OfferedPieces {
 public:
  static Result<std::unique_ptr<OfferedPieces>> offer(std::unique_ptr<PieceDescriptors> exported);
  ~OfferedPieces();
  OfferedPieces(const OfferedPieces&) = delete;
  OfferedPieces& operator=(const OfferedPieces&) = delete;

  [[nodiscard]] uint64_t first_id() const noexcept { return first_id_; }

 private:
  OfferedPieces(std::unique_ptr<PieceDescriptors> exported, uint64_t first_id);

  std::unique_ptr<PieceDescriptors> exported_;
  uint64_t first_id_;
};

/// Those that a peer offered.
Result<std::unique_ptr<PieceDescriptors>> take_pieces(const MappingMessage& offer);

}  // namespace plexus
