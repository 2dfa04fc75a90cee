// SPDX-License-Identifier: Apache-2.0
#include "core/transport/xdc.hpp"

#include <cstring>
#include <utility>

#include "core/transport/fifo_memory.hpp"
#include "core/transport/net_message.hpp"

namespace plexus {
namespace {

constexpr size_t kRouteTextMax = 512;  // of a peer's, in a message
constexpr uint64_t kTag = uint64_t{1} << 62;

struct ControlMessageHead {
  uint64_t kind;
  uint64_t epoch;
  uint64_t count;
  NetHandle handle;
};

}  // namespace

XdcEnd::XdcEnd(const ConnectionKey& key, XdcEndOptions options)
    : ConnectionEnd(key), options_(std::move(options)) {
  has_pump_ = true;
}

Result<bool> XdcEnd::progress_connect() {
  PLEXUS_TRY(advance(Clock::now()));
  connected_ = state_ == State::kOpen;
  return connected_;
}

const NetSet::Path& XdcEnd::path() const { return options_.paths[epoch_ % options_.paths.size()]; }
size_t XdcEnd::message_bytes_max() const { return sizeof(NetHeader) + options_.slot_bytes; }
std::byte* XdcEnd::message(uint64_t step) const {
  return ring_.get() + (step % ring_messages_) * message_bytes_max();
}
Fifo& XdcEnd::fifo() const { return *fifo_at(memory_->memory()); }
std::byte* XdcEnd::slot(uint64_t step) const {
  return slots_at(memory_->memory()) + (step % kSlots) * options_.slot_bytes;
}
plexus_net_region_t XdcEnd::region() const {
  return {.data = ring_.get(),
          .size_bytes = ring_messages_ * message_bytes_max(),
          .dmabuf_offset_bytes = 0,
          .dmabuf_fd = -1,
          .kind = PLEXUS_MEMORY_HOST};
}

Result<void> XdcEnd::make_memory(size_t messages) {
  PLEXUS_TRY(memory, LocalFifo::create(options_.slot_bytes,
                                       {.runtime = options_.runtime, .user = options_.device}));
  memory_ = std::move(memory);
  ring_ = std::make_unique_for_overwrite<std::byte[]>(messages * message_bytes_max());
  ring_messages_ = messages;
  requests_.assign(messages, nullptr);
  return ok();
}

/// For the kernels of a CUDA rank.
DeviceView XdcEnd::view() const {
  DeviceView view =
      view_for_devices(memory_->seen_by_devices(), options_.slot_bytes, Reach::kNothing);
  view.lines = nullptr;
  view.inline_bytes_max = 0;  // payload always in the data area
  return view;
}

/// A pair of ranks has two connections of one index, one each way: four lines of control messages.
uint64_t XdcEnd::tag(bool to_receiver) const {
  return kTag | static_cast<uint64_t>(key().index) << 1 | (to_receiver ? 1 : 0);
}

Result<void> XdcEnd::post(Kind kind, uint64_t count, const NetHandle& handle) {
  const ControlMessageHead head{static_cast<uint64_t>(kind), epoch_, count, handle};
  std::string bytes(sizeof(head), '\0');
  std::memcpy(bytes.data(), &head, sizeof(head));
  if (kind == Kind::kListening) {
    bytes += path().route;
  }
  return options_.exchange->post(key().peer, tag(key().sends), std::move(bytes));
}

Result<std::optional<XdcEnd::ControlMessage>> XdcEnd::take_control_message() {
  const auto bytes = options_.exchange->try_take(key().peer, tag(!key().sends));
  if (!bytes.has_value()) {
    return std::optional<ControlMessage>();
  }
  ControlMessageHead head{};
  if (bytes->size() >= sizeof(head)) {
    std::memcpy(&head, bytes->data(), sizeof(head));
  }
  if (bytes->size() < sizeof(head) || head.kind > static_cast<uint64_t>(Kind::kCalled)) {
    return fail(Code::kRemoteError,
                "{} sent a control message about a cross-DC connection that cannot be read: use "
                "the same version "
                "of Plexus on all ranks",
                options_.peer_name);
  }
  return std::optional(ControlMessage{.kind = static_cast<Kind>(head.kind),
                                      .epoch = head.epoch,
                                      .count = head.count,
                                      .handle = head.handle,
                                      .route = bytes->substr(sizeof(head), kRouteTextMax)});
}

Clock::duration XdcEnd::was_away(Clock::time_point now) {
  const bool is_first = pumped_at_ == Clock::time_point{};
  const Clock::duration away = now - std::exchange(pumped_at_, now);
  return is_first || away <= options_.patience / 4 ? Clock::duration::zero() : away;
}

}  // namespace plexus
