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

}  // namespace

Result<bool> ShmRecv::progress_connect() {
  PLEXUS_TRY(slots, SharedMemory::create(fifo_memory_bytes(options_.slot_stride)));
  slots_ = std::move(slots);
  const SlotsPlace place{slots_.id(), slots_.size(), getpid(), slots_.fd()};
  std::string bytes(sizeof(place), '\0');
  std::memcpy(bytes.data(), &place, sizeof(place));
  PLEXUS_TRY(
      options_.exchange->post(key().peer, static_cast<uint64_t>(key().index), std::move(bytes)));
  recv = RecvConnection(fifo_at(slots_.data()), slots_at(slots_.data()),
                        {.peer = key().peer,
                         .slot_stride = options_.slot_stride,
                         .lines = lines_at(slots_.data()),
                         .places = &places_});
  connected_ = true;
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
  send = SendConnection(fifo_at(slots_.data()), slots_at(slots_.data()),
                        {.peer = key().peer,
                         .reach = options_.borrows ? Reach::kMapped : Reach::kNothing,
                         .slot_stride = options_.slot_stride,
                         .lines = lines_at(slots_.data())});
  connected_ = true;
  return true;
}

}  // namespace plexus
