// SPDX-License-Identifier: Apache-2.0
#include "core/schedule/device_rank.hpp"

#include "core/base/units.hpp"
#include "guest/assert.hpp"

namespace plexus {
namespace {

constexpr size_t kChunkBytes = size_t{64} * 1024;
constexpr size_t kEntryBytes = 2 * kCacheLine;  // no two entries share a cache line
static_assert(sizeof(DeviceSend) <= kEntryBytes && sizeof(DeviceRecv) <= kEntryBytes);

std::atomic_ref<DeviceStop> stop_word(DeviceControl& control) {
  return std::atomic_ref<DeviceStop>(control.stop);
}

}  // namespace

Result<std::unique_ptr<DeviceRank>> DeviceRank::create(DeviceRuntime& runtime,
                                                       int device,
                                                       DeviceWatch& watch) {
  std::unique_ptr<DeviceRank> rank(new DeviceRank(runtime, device, watch));
  PLEXUS_TRY(control, allocate_pinned(runtime, device, sizeof(DeviceControl)));
  rank->control_ = std::move(control);
  PLEXUS_TRY(claimed, allocate_device(runtime, device, sizeof(uint32_t)));
  rank->claimed_ = std::move(claimed);
  for (OwnedEvent* const event :
       {&rank->events_.join, &rank->events_.last, &rank->events_.in_graph}) {
    PLEXUS_TRY(made, make_event(runtime, device));
    *event = std::move(made);
  }
  return rank;
}

void DeviceRank::note_fault(Error fault) {
  if (!fault_.has_value()) {
    fault_ = std::move(fault);
    has_fault_.store(true, std::memory_order_release);  // pairs with fault()
  }
}

void DeviceRank::stop() noexcept {
  DeviceStop running = DeviceStop::kGoOn;  // a failure that a kernel wrote is kept
  stop_word(*control()).compare_exchange_strong(running, DeviceStop::kAborted);
}

const DeviceFailure* DeviceRank::failure() const noexcept {
  // pairs with the kernel's release after it wrote the failure
  const bool failed = stop_word(*control()).load(std::memory_order_acquire) == DeviceStop::kFailed;
  return failed ? &control()->failure : nullptr;
}

Result<std::byte*> DeviceRank::store(const void* bytes, size_t size_bytes) {
  PLEXUS_DCHECK(size_bytes <= kEntryBytes && chunk_bytes_used_ <= kChunkBytes, size_bytes,
                chunk_bytes_used_);
  if (chunks_.empty() || chunk_bytes_used_ + kEntryBytes > kChunkBytes) {
    PLEXUS_TRY(chunk, allocate_device(*runtime_, device_, kChunkBytes));
    chunks_.push_back(std::move(chunk));
    chunk_bytes_used_ = 0;
  }
  std::byte* const place = chunks_.back().get() + chunk_bytes_used_;
  PLEXUS_TRY(runtime_->copy(device_, place, bytes, size_bytes));
  chunk_bytes_used_ += kEntryBytes;
  return place;
}

Result<DeviceSend*> DeviceRank::entry_of_send(DeviceEnd& end) {
  PLEXUS_DCHECK(end.key().sends && end.connected(), end.key().peer);
  DeviceView& view = end.view();
  if (view.entry == nullptr) {
    DeviceSend entry{};
    entry.fifo = reinterpret_cast<Fifo*>(view.fifo);
    entry.data = view.slots;
    entry.lines = view.lines;
    entry.slot_stride = view.slot_stride;
    entry.peer = end.key().peer;
    entry.inline_bytes_max = view.inline_bytes_max;
    entry.by_address = view.reach == Reach::kProcess ? 1 : 0;
    PLEXUS_TRY(place, store(&entry, sizeof(entry)));
    view.entry = place;
  }
  return reinterpret_cast<DeviceSend*>(view.entry);
}

Result<DeviceRecv*> DeviceRank::entry_of_recv(DeviceEnd& end) {
  PLEXUS_DCHECK(!end.key().sends && end.connected(), end.key().peer);
  DeviceView& view = end.view();
  if (view.entry == nullptr) {
    DeviceRecv entry{};
    entry.fifo = reinterpret_cast<Fifo*>(view.fifo);
    entry.data = view.slots;
    entry.lines = view.lines;
    entry.slot_stride = view.slot_stride;
    entry.peer = end.key().peer;
    entry.reads_pointers = view.reach != Reach::kNothing ? 1 : 0;
    PLEXUS_TRY(place, store(&entry, sizeof(entry)));
    view.entry = place;
  }
  return reinterpret_cast<DeviceRecv*>(view.entry);
}

}  // namespace plexus
