// SPDX-License-Identifier: Apache-2.0
#include "tests/support/software_pieces.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "tests/support/software_device.hpp"

namespace plexus::testing_device {
namespace {

Error refused(const char* call, int device) {
  constexpr int kNotSupported = 801;
  return fail(Code::kUnhandledCudaError, "{} failed on cuda:{} (error {})", call, device,
              kNotSupported);
}

}  // namespace

Result<std::shared_ptr<SoftwarePiece>> SoftwarePiece::create(size_t size_bytes,
                                                             bool is_exportable) {
  const int fd = memfd_create("plexus-piece", MFD_CLOEXEC);
  if (fd < 0 || ftruncate(fd, static_cast<off_t>(size_bytes)) != 0) {
    return fail(Code::kUnhandledCudaError, "cuMemCreate: out of memory");
  }
  return std::make_shared<SoftwarePiece>(fd, is_exportable);
}

Result<std::vector<SoftwareMapping>> map_side_by_side(
    std::span<const PieceDescriptors::Piece> pieces) {
  size_t whole_bytes = 0;
  for (const auto& piece : pieces) {
    whole_bytes += piece.size_bytes;
  }
  void* const range =
      mmap(nullptr, whole_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (range == MAP_FAILED) {
    return fail(Code::kUnhandledCudaError, "cuMemAddressReserve: out of memory");
  }
  std::vector<SoftwareMapping> mapped;
  auto* at = static_cast<std::byte*>(range);
  bool is_whole = true;
  for (const auto& [size_bytes, fd] : pieces) {
    mapped.emplace_back(at, [size = size_bytes](std::byte* memory) { munmap(memory, size); });
    struct stat status {};
    is_whole = is_whole && fstat(fd, &status) == 0 &&
               static_cast<size_t>(status.st_size) >= size_bytes &&
               mmap(at, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == at;
    at += size_bytes;
  }
  if (!is_whole) {
    return fail(Code::kUnhandledCudaError, "cuMemMap: invalid argument");
  }
  return mapped;
}

// ---- the device's part ----

Result<void*> SoftwareDevice::map_new_pieces(int device,
                                             std::span<const size_t> sizes,
                                             const NewPieces& kind) {
  std::vector<std::shared_ptr<SoftwarePiece>> made;
  std::vector<PieceDescriptors::Piece> pieces;
  for (const size_t size_bytes : sizes) {
    PLEXUS_TRY(piece, SoftwarePiece::create(size_bytes, kind.are_exportable));
    pieces.push_back({size_bytes, piece->fd});
    made.push_back(std::move(piece));
  }
  PLEXUS_TRY(mapped, map_side_by_side(pieces));
  void* const memory = mapped.front().get();
  for (size_t i = 0; i < made.size(); ++i) {
    add_block(mapped[i].get(), {.kind = Kind::kPiece,
                                .device = device,
                                .size_bytes = sizes[i],
                                .shared = {},
                                .is_private = kind.are_private,
                                .piece = made[i],
                                .mapping = mapped[i]});
  }
  return memory;
}

void* SoftwareDevice::allocate_in_pieces(int device,
                                         const std::vector<size_t>& sizes,
                                         bool are_exportable) {
  return map_new_pieces(device, sizes, {.are_exportable = are_exportable, .are_private = true})
      .value();
}

Result<void*> SoftwareDevice::allocate_piece(int device, size_t size_bytes) {
  call_waiting("cuMemSetAccess");
  if (options_.habits.refuses_cumem) {
    return refused("cuMemCreate", device);
  }
  clear();
  return map_new_pieces(device, std::array{size_bytes},
                        {.are_exportable = true, .are_private = false});
}

Result<Allocation> SoftwareDevice::find_pieces(Blocks::const_iterator at,
                                               const std::byte* end) const {
  Allocation found{.base = at->second.mapping.get()};
  for (const std::byte* next = found.base; next < end && found.pieces.size() < kPiecesMax; ++at) {
    if (at == blocks_.end() || at->first != next || at->second.piece == nullptr) {
      return fail(Code::kUnhandledCudaError, "cuMemRetainAllocationHandle: invalid argument");
    }
    found.pieces.push_back({at->second.size_bytes, at->second.piece->handle()});
    found.size_bytes += at->second.size_bytes;
    next += at->second.size_bytes;
  }
  return found;
}

Result<std::unique_ptr<PieceDescriptors>> SoftwareDevice::export_pieces(int device,
                                                                        const Allocation& memory) {
  struct Exported final : PieceDescriptors {
    explicit Exported(SoftwareDevice* owner) : runtime(owner) {}
    ~Exported() override {
      for (const auto& piece : kept) {
        if (piece.use_count() == 1) {  // the memory goes
          runtime->call_waiting("cuMemRelease");
        }
      }
    }
    SoftwareDevice* runtime;
    std::vector<std::shared_ptr<SoftwarePiece>> kept;
  };
  call_growing("cuMemExportToShareableHandle");
  auto exported = std::make_unique<Exported>(this);
  const std::lock_guard lock(mutex_);
  const std::byte* at = memory.base;
  for (const Allocation::Piece& each : memory.pieces) {
    const Block& block = blocks_.at(at);
    if (options_.habits.refuses_export || !block.piece->is_exportable || block.device != device) {
      return refused("cuMemExportToShareableHandle", device);
    }
    exported->kept.push_back(block.piece);
    exported->pieces.push_back(
        {each.size_bytes, fcntl(block.piece->fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1)});
    at += each.size_bytes;
  }
  return std::unique_ptr<PieceDescriptors>(std::move(exported));
}

Result<void*> SoftwareDevice::import_pieces(int device, const PieceDescriptors& theirs) {
  call_waiting("cuMemSetAccess");
  if (options_.habits.refuses_import) {
    return refused("cuMemImportFromShareableHandle", device);
  }
  PLEXUS_TRY(mapped, map_side_by_side(theirs.pieces));
  size_t whole_bytes = 0;
  for (const auto& piece : theirs.pieces) {
    whole_bytes += piece.size_bytes;
  }
  std::byte* const memory = mapped.front().get();
  // One mapping, which is gone when all of them are.
  const auto all = std::make_shared<std::vector<SoftwareMapping>>(std::move(mapped));
  add_block(memory, {.kind = Kind::kImported,
                     .device = device,
                     .size_bytes = whole_bytes,
                     .shared = {},
                     .is_private = true,
                     .mapping = SoftwareMapping(all, memory)});
  return memory;
}

}  // namespace plexus::testing_device
