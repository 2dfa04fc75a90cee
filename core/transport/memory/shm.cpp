// SPDX-License-Identifier: Apache-2.0
#include "core/transport/memory/shm.hpp"

#include <optional>
#include <unistd.h>
#include <utility>

#include <fmt/format.h>

#include "core/base/bytes.hpp"
#include "core/control/control_tag.hpp"
#include "core/device/device_memory.hpp"
#include "core/os/process_memory.hpp"
#include "core/os/shared_memory.hpp"
#include "core/transport/memory/fifo_memory.hpp"
#include "core/transport/memory/user_memory.hpp"
#include "guest/assert.hpp"

namespace plexus {
namespace {

/// What the receiver posts: where its slots are.
struct SlotsPlace {
  uint64_t id;
  uint64_t size_bytes;
  int32_t pid;
  int32_t fd;
};

/// The slots as one of the two ends has them.
class ShmSlots {
 public:
  /// `peers_process`: the peer's process_id().
  ShmSlots(Exchange& exchange, size_t slot_stride, uint64_t peers_process)
      : exchange_(exchange), slot_stride_(slot_stride), peers_process_(peers_process) {}

  /// The receiver makes the slots; the sender maps them when it is told where they are: false until
  /// then.
  Result<bool> connect(const ConnectionKey& key) { return key.sends ? map(key) : make(key); }
  [[nodiscard]] std::byte* data() const { return memory_.data(); }
  [[nodiscard]] size_t slot_stride() const { return slot_stride_; }
  [[nodiscard]] uint64_t peers_process() const { return peers_process_; }
  [[nodiscard]] size_t mapped_bytes() const { return memory_.mapped_bytes(); }

 private:
  Result<bool> make(const ConnectionKey& key) {
    PLEXUS_DCHECK(memory_.data() == nullptr, key.peer, key.index);  // once
    PLEXUS_TRY(memory, SharedMemory::create(fifo_memory_bytes(slot_stride_)));
    memory_ = std::move(memory);
    ByteWriter writer;
    writer.put(SlotsPlace{memory_.id(), memory_.size(), getpid(), memory_.fd()});
    PLEXUS_TRY(exchange_.post(
        key.peer, tag_of(ControlTag::kHandle, static_cast<uint64_t>(key.index)), writer.take()));
    return true;
  }

  Result<bool> map(const ConnectionKey& key) {
    const auto bytes =
        exchange_.try_take(key.peer, tag_of(ControlTag::kHandle, static_cast<uint64_t>(key.index)));
    if (!bytes.has_value()) {
      return false;
    }
    ByteReader reader(*bytes);
    const auto place = reader.take<SlotsPlace>();
    if (!reader.whole()) {
      return fail(Code::kInternalError,
                  "rank {} sent a description of its shared slots of {} bytes, expected {}: use "
                  "the same version of Plexus on all ranks",
                  key.peer, bytes->size(), sizeof(place));
    }
    if (place.size_bytes != fifo_memory_bytes(slot_stride_)) {
      return fail(
          Code::kInternalError,
          "rank {} shares {} bytes of slots, expected {}: set the same NCCL_BUFFSIZE on all ranks",
          key.peer, place.size_bytes, fifo_memory_bytes(slot_stride_));
    }
    auto memory = SharedMemory::open_peer({.pid = place.pid,
                                           .fd = place.fd,
                                           .size_bytes = place.size_bytes,
                                           .id = place.id,
                                           .owner = peers_process_});
    if (memory.has_error()) {
      return std::move(memory).error().with_context(
          fmt::format("the shared slots of rank {}", key.peer));
    }
    memory_ = std::move(memory).value();
    return true;
  }

  Exchange& exchange_;
  size_t slot_stride_;
  uint64_t peers_process_;
  SharedMemory memory_;
};

class ShmSend final : public SendEnd {
 public:
  /// `reach`: whether the two may map each other's memory from ncclMemAlloc. `attaches`: whether
  /// the receiver reads other memory.
  ShmSend(EndId id, ShmSlots slots, Reach reach, bool attaches)
      : SendEnd(std::move(id)),
        slots_(std::move(slots)),
        places_(slots_.peers_process()),
        reach_(reach),
        attaches_(attaches) {}

 private:
  Result<bool> try_connect() override {
    PLEXUS_TRY(connected, slots_.connect(key()));
    if (connected) {
      offer(SendConnection(fifo_at(slots_.data()), slots_at(slots_.data()),
                           {.peer = key().peer,
                            .reach = reach_,
                            .attaches = attaches_,
                            .slot_stride = slots_.slot_stride(),
                            .lines = lines_at(slots_.data()),
                            .places = &places_}));
    }
    return connected;
  }
  [[nodiscard]] std::string route() const override { return attaches_ ? "shm/attach" : "shm"; }

  ShmSlots slots_;
  PeerSegments places_;
  Reach reach_;
  bool attaches_;
};

/// The memory of a peer in another process.
class AttachedPeer final : public PeerReader {
 public:
  explicit AttachedPeer(const PeerInfo& info)
      : process_(info.pid, info.process_id, info.mark_address) {
    process_.open_file();
  }
  [[nodiscard]] int read(std::byte* target,
                         uint64_t address,
                         size_t size_bytes) const noexcept override {
    return process_.read(target, address, size_bytes);
  }

 private:
  PeerProcess process_;
};

class ShmRecv final : public RecvEnd {
 public:
  /// `reach`: as the sender's. `attached`: nullopt where the peer's memory is not read.
  ShmRecv(EndId id, ShmSlots slots, Reach reach, std::optional<AttachedPeer> attached)
      : RecvEnd(std::move(id)),
        slots_(std::move(slots)),
        places_(slots_.peers_process()),
        reach_(reach),
        attached_(attached) {}

 private:
  Result<bool> try_connect() override {
    PLEXUS_TRY(connected, slots_.connect(key()));
    hold(slots_.mapped_bytes());
    offer(RecvConnection(fifo_at(slots_.data()), slots_at(slots_.data()),
                         {.peer = key().peer,
                          .slot_stride = slots_.slot_stride(),
                          .lines = lines_at(slots_.data()),
                          .reach = reach_,
                          .places = &places_,
                          .reader = attached_.has_value() ? &*attached_ : nullptr}));
    return connected;
  }
  [[nodiscard]] std::string route() const override {
    return attached_.has_value() ? "shm/attach" : "shm";
  }

  ShmSlots slots_;
  PeerSegments places_;
  Reach reach_;
  std::optional<AttachedPeer> attached_;
};

class ShmOnDevice final : public DeviceEnd {
 public:
  ShmOnDevice(EndId id, ShmSlots slots, DeviceRuntime& runtime, int device)
      : DeviceEnd(std::move(id)), slots_(std::move(slots)), runtime_(runtime), device_(device) {}

 private:
  Result<bool> try_connect() override {
    PLEXUS_TRY(connected, slots_.connect(key()));
    if (connected) {
      PLEXUS_TRY(registration, register_host(runtime_, device_, slots_.data(),
                                             fifo_memory_bytes(slots_.slot_stride())));
      registration_ = std::move(registration);
      hold(key().sends ? 0 : slots_.mapped_bytes());
      offer(view_for_devices(registration_.get(), slots_.slot_stride(), Reach::kNothing));
    }
    return connected;
  }
  [[nodiscard]] std::string route() const override { return "shm"; }

  ShmSlots slots_;
  DeviceRuntime& runtime_;
  int device_;
  DeviceMemory registration_;  // the slots', and goes before them
};

ShmSlots slots_for(const EndRequest& request) {
  return {*request.context.exchange, request.context.slot_bytes, request.peers->process_id};
}

/// What either rank reaches of the other's memory, but for what is read by system calls.
Reach reach_of(const EndRequest& request, bool borrows) {
  return borrows && request.mine.local_register != 0 && request.peers->local_register != 0
             ? Reach::kMapped
             : Reach::kNothing;
}

}  // namespace

std::unique_ptr<SendEnd> make_shm_send(EndRequest& request) {
  const bool borrows = request.may_borrow() && !request.peers->on_cuda();
  const Reach reach = reach_of(request, borrows);
  return std::make_unique<ShmSend>(std::move(request.id), slots_for(request), reach,
                                   borrows && request.context.attach);
}

std::unique_ptr<RecvEnd> make_shm_recv(EndRequest& request) {
  const bool borrows = request.may_borrow() && !request.peers->on_cuda();
  const Reach reach = reach_of(request, borrows);
  return std::make_unique<ShmRecv>(std::move(request.id), slots_for(request), reach,
                                   borrows && request.context.attach
                                       ? std::optional(AttachedPeer(*request.peers))
                                       : std::nullopt);
}

std::unique_ptr<DeviceEnd> make_shm_on_device(EndRequest& request) {
  return std::make_unique<ShmOnDevice>(std::move(request.id), slots_for(request),
                                       *request.context.runtime, request.mine.device);
}

}  // namespace plexus
