// SPDX-License-Identifier: Apache-2.0
#include "core/transport/network/collnet.hpp"

#include <algorithm>
#include <cstring>

#include "core/base/bytes.hpp"
#include "core/control/control_tag.hpp"
#include "guest/assert.hpp"
#include "kernels/layout/types.hpp"

namespace plexus {

Error CollnetChannel::failed(const char* call, NetStatus status) const {
  return fail(Code::kRemoteError, "the reduction in the network of {} hosts failed: {}",
              options_.members.size(), group_->explain(call, status).message());
}

Result<bool> CollnetChannel::progress_connect() {
  if (connected_) {
    return true;
  }
  if (!listen_.has_value() && group_ == nullptr) {
    PLEXUS_TRY(post_handle());
  }
  if (group_ == nullptr) {
    PLEXUS_TRY(all_here, take_handles());
    if (!all_here) {
      return false;
    }
    std::vector<plexus_net_handle_t> handles;
    std::transform(handles_.begin(), handles_.end(), std::back_inserter(handles),
                   [](const auto& handle) { return *handle; });
    const auto mine = std::find(options_.members.begin(), options_.members.end(), options_.rank);
    PLEXUS_DCHECK(mine != options_.members.end(), options_.rank, options_.members.size());
    group_ = std::make_unique<CollnetGroup>(std::move(*listen_), std::move(handles),
                                            static_cast<uint32_t>(mine - options_.members.begin()));
    listen_.reset();
  }
  PLEXUS_TRY(progress, group_->try_connect());
  if (progress == NetProgress::kPending) {
    return false;
  }
  PLEXUS_TRY(make_slots());
  connected_ = true;
  return true;
}

Result<void> CollnetChannel::post_handle() {
  PLEXUS_TRY(listen, options_.context->listen(options_.device));
  listen_ = std::move(listen);
  handles_.resize(options_.members.size());
  ByteWriter writer;
  writer.put(listen_->handle());
  writer.put_bytes(options_.context->plugin().name);
  const std::string bytes = writer.take();
  for (size_t i = 0; i < options_.members.size(); ++i) {
    if (options_.members[i] == options_.rank) {
      handles_[i] = listen_->handle();
    } else {
      PLEXUS_TRY(options_.exchange->post(options_.members[i], options_.tag, bytes));
    }
  }
  return ok();
}

Result<bool> CollnetChannel::take_handles() {
  for (size_t i = 0; i < options_.members.size(); ++i) {
    if (handles_[i].has_value()) {
      continue;
    }
    const auto bytes = options_.exchange->try_take(options_.members[i], options_.tag);
    if (!bytes.has_value()) {
      continue;
    }
    ByteReader reader(*bytes);
    const auto handle = reader.take<plexus_net_handle_t>();
    if (reader.broken() || reader.rest() != options_.context->plugin().name) {
      return fail(Code::kInvalidUsage,
                  "rank {} does not use the collnet plugin {} of rank {}: set the same "
                  "PLEXUS_COLLNET_PLUGIN and NCCL_NET_PLUGIN on all ranks",
                  options_.members[i], options_.context->plugin().name, options_.rank);
    }
    handles_[i] = handle;
  }
  return std::all_of(handles_.begin(), handles_.end(),
                     [](const auto& handle) { return handle.has_value(); });
}

Result<void> CollnetChannel::make_slots() {
  const auto make = [&](PumpFifo& fifo, std::optional<CollnetMemory>& registered) -> Result<void> {
    PLEXUS_TRY(made, PumpFifo::create({.payload_bytes = options_.slot_bytes,
                                       .runtime = options_.runtime,
                                       .device = options_.on_device}));
    PLEXUS_TRY(region, group_->register_memory({.data = made.slot(0),
                                                .size_bytes = made.slots_bytes(),
                                                .dmabuf_offset_bytes = 0,
                                                .dmabuf_fd = -1,
                                                .kind = PLEXUS_MEMORY_HOST}));
    fifo = std::move(made);
    registered = std::move(region);
    return ok();
  };
  PLEXUS_TRY(make(sends_, send_memory_));
  return make(recvs_, recv_memory_);
}

std::string CollnetChannel::route() const {
  return fmt::format("collnet/{} ({} hosts)", options_.context->plugin().name,
                     options_.members.size());
}

Result<bool> CollnetChannel::progress_pump() {
  PLEXUS_TRY(started, start_filled());
  PLEXUS_TRY(tested, test_started());
  return started || tested;
}

/// Starts the reductions whose slots are there in both directions: one filled, and one free.
Result<bool> CollnetChannel::start_filled() {
  bool moved = false;
  for (;;) {
    if (!sends_.is_filled(started_) || !recvs_.is_free(started_)) {
      return moved;
    }
    PLEXUS_DCHECK(started_ - done_ < kSlots, started_, done_);
    const SlotHeader& header = sends_.header(started_);
    CallRecord& record = calls_[started_ % kSlots];
    record = sends_.fifo().calls[header.call % kHeaders].load();
    if (record.hash != header.call_hash) {
      return fail(Code::kInternalError, "a slot belongs to no call of rank {}", options_.rank);
    }
    const uint64_t element_bytes = element_size(static_cast<DataType>(record.type));
    PLEXUS_DCHECK(header.size_bytes % element_bytes == 0, header.size_bytes, element_bytes);
    const auto status = group_->iallreduce({.send = sends_.slot(started_),
                                            .recv = recvs_.slot(started_),
                                            .count = header.size_bytes / element_bytes,
                                            .send_memory = send_memory_->raw(),
                                            .recv_memory = recv_memory_->raw(),
                                            .type = record.type,
                                            .op = record.op},
                                           &requests_[started_ % kSlots]);
    if (status == NetStatus::kAgain) {
      return moved;
    }
    if (status != NetStatus::kOk) {
      return failed("iallreduce", status);
    }
    ++started_;
    moved = true;
  }
}

Result<bool> CollnetChannel::test_started() {
  bool moved = false;
  for (; done_ < started_; moved = true) {
    const auto status = group_->test(requests_[done_ % kSlots]);
    if (status == NetStatus::kAgain) {
      return moved;
    }
    if (status != NetStatus::kOk) {
      return failed("test", status);
    }
    const SlotHeader& sent = sends_.header(done_);
    SlotHeader& got = recvs_.fifo().headers[done_ % kHeaders];
    const CallRecord& record = calls_[done_ % kSlots];
    got.call = record_of_call(record.sequence);
    recvs_.fifo().calls[got.call].store(record);
    got.kind = SlotKind::kData;
    got.size_bytes = sent.size_bytes;
    got.call_hash = sent.call_hash;
    ++done_;
    got.ready.store(done_,
                    std::memory_order_release);  // pairs with try_peek(), here or in a kernel
    sends_.release_until(done_);
  }
  return moved;
}

bool CollnetChannel::drained() const noexcept {
  return done_ == started_ && !sends_.is_filled(started_);
}

// ---- ends ----

namespace {

std::shared_ptr<CollnetChannel> channel_for(const EndRequest& request) {
  constexpr int kHalf = 32;
  const ConnectionKey& key = request.id.key;
  const TransportContext& context = request.context;
  auto& channel = request.shared.channels[{key.peer, key.index}];
  if (channel == nullptr) {
    const int network = key.peer - static_cast<int>(context.infos->size());
    const auto number = static_cast<uint64_t>(network);
    channel = std::make_shared<CollnetChannel>(CollnetChannelOptions{
        .exchange = context.exchange,
        .context = context.collnet,
        .slot_bytes = context.slot_bytes,
        .device = static_cast<uint32_t>(number % context.collnet->devices().size()),
        .members = context.collnet_members(key.index / 2, network),
        .rank = context.rank,
        .tag = tag_of(ControlTag::kCollnet, number << kHalf | static_cast<uint64_t>(key.index)),
        .runtime = request.own_runtime(),
        .on_device = request.mine.device});
  }
  return channel;
}

template <class End>
std::unique_ptr<End> make_collnet_end(EndRequest& request) {
  auto channel = channel_for(request);
  return std::make_unique<PumpedEnd<End, CollnetPump>>(std::move(request.id), std::move(channel));
}

}  // namespace

std::unique_ptr<SendEnd> make_collnet_send(EndRequest& request) {
  return make_collnet_end<SendEnd>(request);
}
std::unique_ptr<RecvEnd> make_collnet_recv(EndRequest& request) {
  return make_collnet_end<RecvEnd>(request);
}
std::unique_ptr<DeviceEnd> make_collnet_on_device(EndRequest& request) {
  return make_collnet_end<DeviceEnd>(request);
}

}  // namespace plexus
