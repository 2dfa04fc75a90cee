// SPDX-License-Identifier: Apache-2.0
#include "core/transport/shm.hpp"

#include <cstring>
#include <unistd.h>

#include "core/transport/fifo_memory.hpp"

namespace plexus {
namespace {

/// What the receiver posts: where its slots are.
struct SlotsPlace {
  uint64_t id;
  uint64_t size_bytes;
  int32_t pid;
  int32_t fd;
};

/// For an end of a CUDA rank.
Result<void> show_to_devices(DeviceRuntime& runtime,
                             int device,
                             const SharedMemory& slots,
                             size_t slot_stride,
                             DeviceMemory& registration,
                             DeviceView& view) {
  PLEXUS_TRY(made, register_host(runtime, device, slots.data(), fifo_memory_bytes(slot_stride)));
  registration = std::move(made);
  view = view_for_devices(registration.get(), slot_stride, Reach::kNothing);
  return ok();
}

}  // namespace

Result<bool> ShmRecv::progress_connect() {
  PLEXUS_TRY(slots, SharedMemory::create(fifo_memory_bytes(options_.slot_stride)));
  slots_ = std::move(slots);
  if (options_.runtime != nullptr) {
    PLEXUS_TRY(show_to_devices(*options_.runtime, options_.device, slots_, options_.slot_stride,
                               registration_, device_view));
  }
  const SlotsPlace place{slots_.id(), slots_.size(), getpid(), slots_.fd()};
  std::string bytes(sizeof(place), '\0');
  std::memcpy(bytes.data(), &place, sizeof(place));
  PLEXUS_TRY(
      options_.exchange->post(key().peer, static_cast<uint64_t>(key().index), std::move(bytes)));
  connected_ = true;
  if (options_.runtime != nullptr) {
    return true;
  }
  recv = RecvConnection(fifo_at(slots_.data()), slots_at(slots_.data()),
                        {.peer = key().peer,
                         .slot_stride = options_.slot_stride,
                         .lines = lines_at(slots_.data()),
                         .places = &places_});
  return true;
}

Result<bool> ShmSend::progress_connect() {
  const auto bytes = options_.exchange->try_take(key().peer, static_cast<uint64_t>(key().index));
  if (!bytes.has_value()) {
    return false;
  }
  SlotsPlace place{};
  if (bytes->size() != sizeof(place)) {
    return fail(Code::kInternalError,
                "rank {} described its shared slots in {} bytes where {} are expected", key().peer,
                bytes->size(), sizeof(place));
  }
  std::memcpy(&place, bytes->data(), sizeof(place));
  if (place.size_bytes != fifo_memory_bytes(options_.slot_stride)) {
    return fail(Code::kInternalError, "rank {} shares {} bytes of slots where {} are expected",
                key().peer, place.size_bytes, fifo_memory_bytes(options_.slot_stride));
  }
  PLEXUS_TRY(
      slots,
      SharedMemory::open_peer(
          {.pid = place.pid, .fd = place.fd, .size_bytes = place.size_bytes, .id = place.id}));
  slots_ = std::move(slots);
  connected_ = true;
  if (options_.runtime != nullptr) {
    PLEXUS_TRY(show_to_devices(*options_.runtime, options_.device, slots_, options_.slot_stride,
                               registration_, device_view));
    return true;
  }
  send = SendConnection(fifo_at(slots_.data()), slots_at(slots_.data()),
                        {.peer = key().peer,
                         .reach = options_.borrows ? Reach::kMapped : Reach::kNothing,
                         .slot_stride = options_.slot_stride,
                         .lines = lines_at(slots_.data())});
  return true;
}

}  // namespace plexus
