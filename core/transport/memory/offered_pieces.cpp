// SPDX-License-Identifier: Apache-2.0
#include "core/transport/memory/offered_pieces.hpp"

#include <utility>

#include "core/os/memory_server.hpp"

namespace plexus {

Result<std::unique_ptr<OfferedPieces>> OfferedPieces::offer(
    std::unique_ptr<PieceDescriptors> exported) {
  PLEXUS_TRY(first_id, MemoryServer::new_id());
  MemoryServer::instance().start();
  return std::unique_ptr<OfferedPieces>(new OfferedPieces(std::move(exported), first_id));
}

OfferedPieces::OfferedPieces(std::unique_ptr<PieceDescriptors> exported, uint64_t first_id)
    : exported_(std::move(exported)), first_id_(first_id) {
  uint64_t id = first_id_;
  for (const PieceDescriptors::Piece& piece : exported_->pieces) {
    MemoryServer::instance().add(id++, piece.fd);
  }
}

OfferedPieces::~OfferedPieces() {
  uint64_t id = first_id_;
  for (const PieceDescriptors::Piece& piece : exported_->pieces) {
    MemoryServer::remove(id++, piece.fd);
  }
}

Result<std::unique_ptr<PieceDescriptors>> take_pieces(const MappingMessage& offer) {
  auto theirs = std::make_unique<PieceDescriptors>();
  theirs->pieces.reserve(offer.piece_bytes.size());
  uint64_t id = offer.first_id;
  for (const uint64_t size_bytes : offer.piece_bytes) {
    PLEXUS_TRY(fd, MemoryServer::ask(offer.process, id++));
    theirs->pieces.push_back({size_bytes, fd});
  }
  return theirs;
}

}  // namespace plexus
