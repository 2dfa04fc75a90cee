// SPDX-License-Identifier: Apache-2.0
#include "core/transport/collnet.hpp"

#include <algorithm>
#include <cstring>

#include "core/base/log.hpp"
#include "core/transport/fifo_memory.hpp"
#include "kernels/layout/types.hpp"

namespace plexus {

Fifo* CollnetChannel::fifo_at(const LocalFifo& memory) { return plexus::fifo_at(memory.memory()); }
std::byte* CollnetChannel::slot(const LocalFifo& memory, uint64_t step, size_t stride) {
  return slots_at(memory.memory()) + (step % kSlots) * stride;
}

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
  PLEXUS_INFO(kNet, "rank {}: a group of {} hosts reduces through {}", options_.rank,
              options_.members.size(), options_.context->plugin().name);
  return true;
}

Result<void> CollnetChannel::post_handle() {
  PLEXUS_TRY(listen, options_.context->listen(options_.device));
  listen_ = std::move(listen);
  handles_.resize(options_.members.size());
  std::string bytes(sizeof(plexus_net_handle_t), '\0');
  std::memcpy(bytes.data(), &listen_->handle(), bytes.size());
  bytes += options_.context->plugin().name;
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
    plexus_net_handle_t handle{};
    if (bytes->size() < sizeof(handle) ||
        std::string_view(*bytes).substr(sizeof(handle)) != options_.context->plugin().name) {
      return fail(Code::kInvalidUsage,
                  "rank {} uses another collnet plugin than {}, that of rank {}: set "
                  "PLEXUS_COLLNET_PLUGIN and NCCL_NET_PLUGIN alike on all ranks",
                  options_.members[i], options_.context->plugin().name, options_.rank);
    }
    std::memcpy(&handle, bytes->data(), sizeof(handle));
    handles_[i] = handle;
  }
  return std::all_of(handles_.begin(), handles_.end(),
                     [](const auto& handle) { return handle.has_value(); });
}

Result<void> CollnetChannel::make_slots() {
  const size_t stride = options_.slot_bytes;
  const auto make = [&](std::shared_ptr<LocalFifo>& memory,
                        std::optional<CollnetMemory>& registered) -> Result<void> {
    PLEXUS_TRY(
        made, LocalFifo::create(stride, {.runtime = options_.runtime, .user = options_.on_device}));
    memory = std::move(made);
    PLEXUS_TRY(region, group_->register_memory({.data = slots_at(memory->memory()),
                                                .size_bytes = kSlots * stride,
                                                .dmabuf_offset_bytes = 0,
                                                .dmabuf_fd = -1,
                                                .kind = PLEXUS_MEMORY_HOST}));
    registered = std::move(region);
    return ok();
  };
  PLEXUS_TRY(make(sends_, send_memory_));
  return make(recvs_, recv_memory_);
}

SendConnection CollnetChannel::send_connection(int peer) {
  return {&sends(),
          slot(*sends_, 0, options_.slot_bytes),
          {.peer = peer, .inline_bytes_max = 0, .slot_stride = options_.slot_bytes}};
}
RecvConnection CollnetChannel::recv_connection(int peer) {
  return {&recvs(),
          slot(*recvs_, 0, options_.slot_bytes),
          {.peer = peer, .slot_stride = options_.slot_bytes}};
}

std::optional<DeviceView> CollnetChannel::device_view(bool sends) const {
  if (options_.runtime == nullptr) {
    return std::nullopt;
  }
  const LocalFifo& memory = sends ? *sends_ : *recvs_;
  DeviceView view =
      view_for_devices(memory.seen_by_devices(), options_.slot_bytes, Reach::kNothing);
  view.lines = nullptr;
  view.inline_bytes_max = 0;  // payload always in the data area
  return view;
}

Result<bool> CollnetChannel::progress_pump() {
  PLEXUS_TRY(started, start_filled());
  PLEXUS_TRY(tested, test_started());
  return started || tested;
}

/// As far as slots of both directions are there. This thread fills and frees them, or a kernel
/// does: the orders pair with its.
Result<bool> CollnetChannel::start_filled() {
  bool moved = false;
  for (;;) {
    const SlotHeader& header = sends().headers[started_ % kSlots];
    if (header.ready.load(std::memory_order_acquire) != started_ + 1 ||
        started_ >= recvs().taken.load(std::memory_order_acquire) + kSlots) {
      return moved;
    }
    const auto* const call =
        std::find_if(std::begin(sends().calls), std::end(sends().calls),
                     [&](const SharedCall& each) { return each.load().hash == header.call_hash; });
    if (call == std::end(sends().calls)) {
      return fail(Code::kInternalError, "a slot belongs to no call of rank {}", options_.rank);
    }
    CallRecord& record = calls_[started_ % kSlots];
    record = call->load();
    const uint64_t element_bytes = element_size(static_cast<DataType>(record.type));
    const auto status = group_->iallreduce({.send = slot(*sends_, started_, options_.slot_bytes),
                                            .recv = slot(*recvs_, started_, options_.slot_bytes),
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
    const SlotHeader& sent = sends().headers[done_ % kSlots];
    SlotHeader& got = recvs().headers[done_ % kSlots];
    const CallRecord& record = calls_[done_ % kSlots];
    recvs().calls[record.sequence % kSlots].store(record);
    got.kind = SlotKind::kData;
    got.size_bytes = sent.size_bytes;
    got.call_hash = sent.call_hash;
    ++done_;
    got.ready.store(done_, std::memory_order_release);  // see start_filled()
    sends().taken.store(done_, std::memory_order_release);
  }
  return moved;
}

bool CollnetChannel::drained() noexcept {
  return done_ == started_ &&
         sends().headers[started_ % kSlots].ready.load(std::memory_order_relaxed) != started_ + 1;
}

Result<bool> CollnetEnd::progress_connect() {
  PLEXUS_TRY(connected, channel_->progress_connect());
  if (connected) {
    if (const auto view = channel_->device_view(key().sends); view.has_value()) {
      device_view = *view;
    } else if (key().sends) {
      send = channel_->send_connection(key().peer);
    } else {
      recv = channel_->recv_connection(key().peer);
    }
    connected_ = true;
  }
  return connected;
}

}  // namespace plexus
