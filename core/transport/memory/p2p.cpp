// SPDX-License-Identifier: Apache-2.0
#include "core/transport/memory/p2p.hpp"

#include <utility>

#include "core/base/bytes.hpp"
#include "core/base/units.hpp"
#include "core/control/control_tag.hpp"
#include "core/device/device_memory.hpp"
#include "core/transport/memory/fifo_memory.hpp"

namespace plexus {
namespace {

/// What the receiver posts.
struct SlotsOnDevice {
  uint64_t size_bytes;
  MemoryHandle handle;
};

class P2pEnd final : public DeviceEnd {
 public:
  P2pEnd(EndId id, const EndRequest& request)
      : DeviceEnd(std::move(id)),
        exchange_(*request.context.exchange),
        runtime_(*request.context.runtime),
        device_(request.mine.device),
        slot_stride_(request.context.slot_bytes),
        reach_(request.may_borrow() ? Reach::kMapped : Reach::kNothing) {}

 private:
  Result<bool> try_connect() override {
    PLEXUS_TRY(connected, key().sends ? open_slots() : make_slots());
    if (connected) {
      offer(view_for_devices(slots_.get(), slot_stride_, reach_));
    }
    return connected;
  }
  Result<bool> make_slots();
  Result<bool> open_slots();
  [[nodiscard]] std::string route() const override { return "p2p"; }

  Exchange& exchange_;
  DeviceRuntime& runtime_;
  int device_;  // the one that this end's rank computes on
  size_t slot_stride_;
  Reach reach_;  // kMapped: the receiver may read memory that the sender maps for it
  DeviceMemory slots_;
};

Result<bool> P2pEnd::make_slots() {
  const size_t size_bytes = fifo_memory_bytes(slot_stride_);
  PLEXUS_TRY(slots, allocate_lasting(runtime_, device_, align_up(size_bytes, kExportGranule)));
  slots_ = std::move(slots);
  hold(align_up(size_bytes, kExportGranule));
  PLEXUS_TRY(handle, runtime_.export_memory(device_, slots_.get()));
  ByteWriter writer;
  writer.put(SlotsOnDevice{size_bytes, handle});
  PLEXUS_TRY(exchange_.post(
      key().peer, tag_of(ControlTag::kHandle, static_cast<uint64_t>(key().index)), writer.take()));
  return true;
}

/// False: the receiver has not told where they are.
Result<bool> P2pEnd::open_slots() {
  const auto bytes = exchange_.try_take(
      key().peer, tag_of(ControlTag::kHandle, static_cast<uint64_t>(key().index)));
  if (!bytes.has_value()) {
    return false;
  }
  ByteReader reader(*bytes);
  const auto place = reader.take<SlotsOnDevice>();
  if (!reader.whole()) {
    return fail(Code::kInternalError,
                "rank {} sent a description of its device slots of {} bytes, expected {}: use the "
                "same version of Plexus on all ranks",
                key().peer, bytes->size(), sizeof(place));
  }
  if (place.size_bytes != fifo_memory_bytes(slot_stride_)) {
    return fail(
        Code::kInternalError,
        "rank {} has {} bytes of slots, expected {}: set the same NCCL_BUFFSIZE on all ranks",
        key().peer, place.size_bytes, fifo_memory_bytes(slot_stride_));
  }
  auto slots = import_memory(runtime_, device_, place.handle);
  if (slots.has_error()) {
    return std::move(slots).error().with_context(
        fmt::format("opening the slots of rank {} (NCCL_P2P_DISABLE=1 avoids this)", key().peer));
  }
  slots_ = std::move(slots).value();
  return true;
}

}  // namespace

std::unique_ptr<DeviceEnd> make_p2p_on_device(EndRequest& request) {
  EndId id = std::move(request.id);
  return std::make_unique<P2pEnd>(std::move(id), request);
}

}  // namespace plexus
