// SPDX-License-Identifier: Apache-2.0
#include "core/transport/p2p.hpp"

#include <cstring>

#include "core/transport/fifo_memory.hpp"

namespace plexus {
namespace {

/// What the receiver posts.
struct SlotsOnDevice {
  uint64_t size_bytes;
  MemoryHandle handle;
};

Reach reach_of(const P2pOptions& options) {
  return options.borrows ? Reach::kMapped : Reach::kNothing;
}

}  // namespace

Result<bool> P2pRecv::progress_connect() {
  const size_t size_bytes = fifo_memory_bytes(options_.slot_stride);
  PLEXUS_TRY(slots, allocate_lasting(*options_.runtime, options_.device,
                                     align_up(size_bytes, kExportGranule)));
  slots_ = std::move(slots);
  PLEXUS_TRY(handle, options_.runtime->export_memory(options_.device, slots_.get()));
  const SlotsOnDevice place{size_bytes, handle};
  std::string bytes(sizeof(place), '\0');
  std::memcpy(bytes.data(), &place, sizeof(place));
  PLEXUS_TRY(
      options_.exchange->post(key().peer, static_cast<uint64_t>(key().index), std::move(bytes)));
  device_view = view_for_devices(slots_.get(), options_.slot_stride, reach_of(options_));
  connected_ = true;
  return true;
}

Result<bool> P2pSend::progress_connect() {
  const auto bytes = options_.exchange->try_take(key().peer, static_cast<uint64_t>(key().index));
  if (!bytes.has_value()) {
    return false;
  }
  SlotsOnDevice place{};
  if (bytes->size() != sizeof(place)) {
    return fail(Code::kInternalError,
                "rank {} described its slots on a device in {} bytes where {} are expected",
                key().peer, bytes->size(), sizeof(place));
  }
  std::memcpy(&place, bytes->data(), sizeof(place));
  if (place.size_bytes != fifo_memory_bytes(options_.slot_stride)) {
    return fail(Code::kInternalError, "rank {} has {} bytes of slots where {} are expected",
                key().peer, place.size_bytes, fifo_memory_bytes(options_.slot_stride));
  }
  auto slots = import_memory(*options_.runtime, options_.device, place.handle);
  if (slots.has_error()) {
    return std::move(slots).error().with_context(
        fmt::format("opening the slots of rank {} (NCCL_P2P_DISABLE=1 goes without)", key().peer));
  }
  slots_ = std::move(slots).value();
  device_view = view_for_devices(slots_.get(), options_.slot_stride, reach_of(options_));
  connected_ = true;
  return true;
}

}  // namespace plexus
