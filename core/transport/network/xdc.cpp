// SPDX-License-Identifier: Apache-2.0
#include "core/transport/network/xdc.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/base/bytes.hpp"
#include "core/base/units.hpp"
#include "core/control/control_tag.hpp"
#include "core/transport/network/net_message.hpp"
#include "guest/assert.hpp"

namespace plexus {
namespace {

constexpr size_t kRouteTextMax = 512;  // bytes of a peer's route, in a message

struct XdcMessageHead {
  uint64_t kind;
  uint64_t epoch;
  uint64_t count;
  NetHandle handle;
};

}  // namespace

XdcPump::XdcPump(const ConnectionKey& key, XdcEndOptions options)
    : key_(key), options_(std::move(options)), bytes_of_path_(options_.paths.size()) {
  PLEXUS_DCHECK(!options_.paths.empty() && options_.sockets > 0, key_.peer, options_.sockets);
}

void XdcPump::note_open() {
  if (options_.routes != nullptr) {
    options_.routes->use(key_, options_.peer_datacenter, options_.paths, index_of(epoch_));
  }
}

std::string XdcPump::describe_use(uint64_t epoch) const {
  return fmt::format("{} ({} bytes so far)", path_of(epoch).route, bytes_of_path_[index_of(epoch)]);
}

size_t XdcPump::message_bytes_max() const { return sizeof(NetHeader) + options_.slot_bytes; }
std::byte* XdcPump::message(uint64_t step) const {
  PLEXUS_DCHECK(ring_ != nullptr, step);
  return ring_.get() + (step % ring_messages_) * message_bytes_max();
}
plexus_net_region_t XdcPump::ring_region() const {
  return {.data = ring_.get(),
          .size_bytes = ring_messages_ * message_bytes_max(),
          .dmabuf_offset_bytes = 0,
          .dmabuf_fd = -1,
          .kind = PLEXUS_MEMORY_HOST};
}

plexus_net_region_t XdcPump::ack_region() {
  return {.data = &ack_buffer_,
          .size_bytes = sizeof(ack_buffer_),
          .dmabuf_offset_bytes = 0,
          .dmabuf_fd = -1,
          .kind = PLEXUS_MEMORY_HOST};
}

Result<void> XdcPump::make_memory(size_t messages) {
  PLEXUS_DCHECK(ring_ == nullptr && messages > 0, messages);
  PLEXUS_TRY(fifo, PumpFifo::create({.payload_bytes = options_.slot_bytes,
                                     .runtime = options_.runtime,
                                     .device = options_.device}));
  fifo_ = std::move(fifo);
  ring_ = std::make_unique_for_overwrite<std::byte[]>(messages * message_bytes_max());
  ring_messages_ = messages;
  requests_.assign(messages, nullptr);
  return ok();
}

/// A pair of ranks has two connections of one index, one each way: four lines of control messages.
uint64_t XdcPump::tag(bool to_receiver) const {
  constexpr int kLifeAt = 28;
  PLEXUS_DCHECK(key_.index >> (kLifeAt - 1) == 0, key_.index);
  return tag_of(ControlTag::kXdc, uint64_t{options_.life} << kLifeAt |
                                      static_cast<uint64_t>(key_.index) << 1 |
                                      (to_receiver ? 1 : 0));
}

Result<void> XdcPump::post(Kind kind, uint64_t epoch, uint64_t count, const NetHandle& handle) {
  const XdcMessageHead head{static_cast<uint64_t>(kind), epoch, count, handle};
  ByteWriter writer;
  writer.put(head);
  if (kind == Kind::kListening || kind == Kind::kTry) {
    writer.put_bytes(path_of(epoch).route);
  }
  return options_.exchange->post(key_.peer, tag(key_.sends), writer.take());
}

Result<std::optional<XdcPump::ControlMessage>> XdcPump::take_control_message() {
  const auto bytes = options_.exchange->try_take(key_.peer, tag(!key_.sends));
  if (!bytes.has_value()) {
    return std::optional<ControlMessage>();
  }
  ByteReader reader(*bytes);
  const auto head = reader.take<XdcMessageHead>();
  if (reader.broken() || head.kind > static_cast<uint64_t>(Kind::kSwitch)) {
    return fail(Code::kRemoteError,
                "{} sent a malformed control message about a cross-DC connection: use the same "
                "version of Plexus on all ranks",
                options_.peer_name);
  }
  return std::optional(
      ControlMessage{.kind = static_cast<Kind>(head.kind),
                     .epoch = head.epoch,
                     .count = head.count,
                     .handle = head.handle,
                     .route = std::string(reader.rest().substr(0, kRouteTextMax))});
}

Clock::duration XdcPump::was_away(Clock::time_point now) {
  const bool is_first = pumped_at_ == Clock::time_point{};
  const Clock::duration away = now - std::exchange(pumped_at_, now);
  return is_first || away <= options_.patience / 4 ? Clock::duration::zero() : away;
}

// ---- ends ----

namespace {

/// Twice what is on the way there and back, so that acknowledgements that come late cost nothing.
uint32_t window_of(const XdcLink& link, uint32_t slot_bytes) {
  constexpr uint32_t kWindowUnknown = 16;  // messages: 2 MiB when they have 128 KiB
  constexpr uint64_t kWindowMax = 512;
  constexpr double kBytesPerMbitNs = 1e6 / 8 / 1e9;
  if (link.mbit_per_s == 0 || link.latency_ns == 0) {
    return kWindowUnknown;
  }
  const double bytes = 2 * 2 * static_cast<double>(link.latency_ns) *
                       static_cast<double>(link.mbit_per_s) * kBytesPerMbitNs;
  const double messages = bytes / slot_bytes + 2;
  return static_cast<uint32_t>(std::clamp(messages, double{kSlots}, double{kWindowMax}));
}

/// A kernel lets the window of each socket grow from little, halves it for a packet that is lost,
/// and lets none grow beyond some MiB.
uint32_t sockets_of(uint32_t window, uint32_t slot_bytes) {
  constexpr uint64_t kBytesOfSocket = 1_MiB;
  constexpr uint64_t kSocketsMax = 4;
  return static_cast<uint32_t>(
      std::clamp(uint64_t{window} * slot_bytes / kBytesOfSocket, uint64_t{1}, kSocketsMax));
}

/// A slow link is silent as long as a message takes, of each of the ranks that may share it.
std::chrono::milliseconds patience_of(const XdcLink& link,
                                      uint32_t slot_bytes,
                                      std::chrono::milliseconds least) {
  constexpr uint64_t kSharers = 16;
  const uint64_t message_us = link.mbit_per_s == 0 ? 0 : slot_bytes * 8 / link.mbit_per_s;
  const auto slow = std::chrono::microseconds(message_us * kSharers + 4 * link.latency_ns / 1000);
  return std::max(least, std::chrono::duration_cast<std::chrono::milliseconds>(slow));
}

template <class End, class P>
std::unique_ptr<End> make_xdc_end(EndRequest& request) {
  const ConnectionKey& key = request.id.key;
  const TransportContext& context = request.context;
  const int source = key.sends ? context.rank : key.peer;
  const int target = key.sends ? key.peer : context.rank;
  const auto channel = static_cast<uint32_t>(key.index / 2);
  auto paths = context.nets->find_paths(context.rank, source, target, channel, *context.infos);
  if (paths.has_error()) {
    return std::make_unique<UnreachableEnd<End>>(std::move(request.id), std::move(paths).error());
  }
  const XdcLink link = context.xdc_link(key.peer).value_or(XdcLink{});
  const uint32_t window = window_of(link, context.slot_bytes);
  return std::make_unique<PumpedEnd<End, P>>(
      std::move(request.id),
      XdcEndOptions{.exchange = context.exchange,
                    .paths = std::move(paths).value(),
                    .slot_bytes = context.slot_bytes,
                    .life = context.life,
                    .window = window,
                    .sockets = sockets_of(window, context.slot_bytes),
                    .patience = patience_of(link, context.slot_bytes, context.xdc_patience),
                    .retry = context.xdc_retry,
                    .peer_name = describe_rank(key.peer, *request.peers),
                    .routes = request.shared.xdc_routes.get(),
                    .peer_datacenter = link.datacenter,
                    .counts = context.link_counts,
                    .runtime = request.own_runtime(),
                    .device = request.mine.device,
                    .has_checksums = request.mine.net_checksum != 0});
}

}  // namespace

std::unique_ptr<SendEnd> make_xdc_send(EndRequest& request) {
  return make_xdc_end<SendEnd, XdcSender>(request);
}
std::unique_ptr<RecvEnd> make_xdc_recv(EndRequest& request) {
  return make_xdc_end<RecvEnd, XdcReceiver>(request);
}
std::unique_ptr<DeviceEnd> make_xdc_on_device(EndRequest& request) {
  return request.id.key.sends ? make_xdc_end<DeviceEnd, XdcSender>(request)
                              : make_xdc_end<DeviceEnd, XdcReceiver>(request);
}

}  // namespace plexus
