// SPDX-License-Identifier: Apache-2.0
#include "core/transport/memory/direct.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <sys/mman.h>
#include <type_traits>

#include "core/transport/memory/fifo_memory.hpp"
#include "guest/assert.hpp"

namespace plexus {

Result<std::shared_ptr<LocalFifo>> LocalFifo::create(size_t slot_stride, const FifoHome& home) {
  std::shared_ptr<LocalFifo> fifo(new LocalFifo());
  fifo->home_ = home;
  const size_t size_bytes = fifo_memory_bytes(home.slots_later ? 0 : slot_stride);
  fifo->held_bytes_.store(size_bytes, std::memory_order_relaxed);
  if (home.device >= 0) {
    PLEXUS_TRY(on_device, allocate_lasting(*home.runtime, home.device, size_bytes));
    fifo->on_device_ = std::move(on_device);
    return fifo;
  }
  // Pages come when a slot is first used: 1,024 ranks in a process touch few of theirs.
  void* const memory = mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) {
    return fail(Code::kSystemError,
                "cannot map {} bytes for a connection's slots: {}; use fewer ranks per process, or "
                "lower NCCL_BUFFSIZE",
                size_bytes, std::strerror(errno));
  }
  fifo->memory_ = static_cast<std::byte*>(memory);
  fifo->size_bytes_ = size_bytes;
  return fifo;
}

Result<std::byte*> LocalFifo::show_to_devices(DeviceRuntime& runtime, int device) {
  const std::lock_guard lock(mutex_);
  if (on_device_ == nullptr) {
    PLEXUS_TRY(registered, register_host(runtime, device, memory_, size_bytes_));
    on_device_ = std::move(registered);
  }
  return on_device_.get();
}

Result<std::byte*> LocalFifo::make_slots(size_t slot_stride) {
  const std::lock_guard lock(mutex_);
  if (slots_ == nullptr) {
    PLEXUS_TRY(made, allocate_lasting(*home_.runtime, home_.device, kSlots * slot_stride));
    slots_ = std::move(made);
    held_bytes_.fetch_add(kSlots * slot_stride, std::memory_order_relaxed);
  }
  return slots_.get();
}

LocalFifo::~LocalFifo() {
  on_device_.reset();
  if (memory_ != nullptr) {
    munmap(memory_, size_bytes_);
  }
}

Result<std::shared_ptr<LocalFifo>> LocalRendezvous::meet(const Key& key,
                                                         int rank,
                                                         size_t slot_stride,
                                                         const FifoHome& home) {
  const std::lock_guard lock(mutex_);
  Group& group = groups_[key.group];
  PLEXUS_DCHECK(rank == key.source || rank == key.target, rank, key.source, key.target);
  PLEXUS_DCHECK(group.left.count(rank) == 0, rank);
  const auto at = group.waiting.find(key);
  if (at != group.waiting.end()) {
    PLEXUS_DCHECK(at->second.maker != rank && at->second.fifo != nullptr, rank);
    auto fifo = std::move(at->second.fifo);
    group.waiting.erase(at);
    return fifo;
  }
  if (group.left.count(rank == key.source ? key.target : key.source) != 0) {
    return std::shared_ptr<LocalFifo>();
  }
  PLEXUS_TRY(fifo, LocalFifo::create(slot_stride, home));
  group.waiting.emplace(key, Waiting{rank, fifo});
  return fifo;
}

void LocalRendezvous::leave(uint64_t group, int rank, int local_ranks) {
  const std::lock_guard lock(mutex_);
  Group& left = groups_[group];
  const bool is_new = left.left.insert(rank).second;
  PLEXUS_DCHECK(is_new && left.left.size() <= static_cast<size_t>(local_ranks), rank, local_ranks);
  if (left.left.size() == static_cast<size_t>(local_ranks)) {
    groups_.erase(group);
    return;
  }
  std::erase_if(left.waiting, [&](const auto& entry) {  // for this rank, which does not come
    const Key& key = entry.first;
    return entry.second.maker != rank && (key.source == rank || key.target == rank);
  });
}

void LocalRendezvous::withdraw(uint64_t group, int rank) {
  const std::lock_guard lock(mutex_);
  const auto at = groups_.find(group);
  if (at != groups_.end()) {
    std::erase_if(at->second.waiting,
                  [&](const auto& entry) { return entry.second.maker == rank; });
  }
}

size_t LocalRendezvous::groups() const {
  const std::lock_guard lock(mutex_);
  return groups_.size();
}

// ---- ends ----

namespace {

/// `End`: SendEnd, RecvEnd or DeviceEnd.
template <class End>
class DirectEnd : public End {
 public:
  DirectEnd(EndId id, const DirectOptions& options)
      : End(std::move(id)),
        options_(options),
        place_{.group = this->group(),
               .source = this->key().sends ? this->rank() : this->key().peer,
               .target = this->key().sends ? this->key().peer : this->rank(),
               .index = this->key().index} {}

 private:
  Result<bool> try_connect() override {
    PLEXUS_TRY(
        fifo, options_.rendezvous->meet(place_, this->rank(), options_.slot_stride, options_.home));
    if (fifo == nullptr) {
      return false;  // for ever: who waits long learns that the peer has left
    }
    fifo_ = std::move(fifo);
    if (!this->key().sends) {  // so that one of the two counts it
      this->hold(fifo_->held_bytes());
    }
    PLEXUS_TRY(offer_slots());
    return true;
  }

  Result<void> offer_slots() {
    const Reach reach = options_.borrows ? Reach::kProcess : Reach::kNothing;
    if constexpr (std::is_same_v<End, DeviceEnd>) {
      if (options_.peer_device >= 0) {  // reads the peer's memory, writes into its Fifo
        PLEXUS_TRY(options_.home.runtime->enable_reach(options_.device, options_.peer_device));
      }
      PLEXUS_TRY(memory, fifo_->show_to_devices(*options_.home.runtime, options_.device));
      DeviceView view = view_for_devices(memory, options_.slot_stride, reach);
      view.slots = options_.home.slots_later ? nullptr : view.slots;
      this->offer(view);
      return ok();
    }
    std::byte* const memory = fifo_->memory();
    this->fifo_in_process_ = fifo_at(memory);
    if constexpr (std::is_same_v<End, SendEnd>) {
      this->offer(SendConnection(fifo_at(memory), slots_at(memory),
                                 {.peer = this->key().peer,
                                  .reach = reach,
                                  .slot_stride = options_.slot_stride,
                                  .lines = lines_at(memory)}));
    } else if constexpr (std::is_same_v<End, RecvEnd>) {
      this->offer(RecvConnection(fifo_at(memory), slots_at(memory),
                                 {.peer = this->key().peer,
                                  .slot_stride = options_.slot_stride,
                                  .lines = lines_at(memory),
                                  .reach = reach}));
    }
    return ok();
  }
  [[nodiscard]] std::string route() const override { return "direct"; }

 protected:
  DirectOptions options_;
  std::shared_ptr<LocalFifo> fifo_;

 private:
  LocalRendezvous::Key place_;
};

class DirectDeviceEnd final : public DirectEnd<DeviceEnd> {
 public:
  using DirectEnd::DirectEnd;

 private:
  Result<std::byte*> add_slots() override { return fifo_->make_slots(options_.slot_stride); }
};

template <class End>
std::unique_ptr<End> make_direct_end(EndRequest& request) {
  using Made = std::conditional_t<std::is_same_v<End, DeviceEnd>, DirectDeviceEnd, DirectEnd<End>>;
  const PeerInfo& mine = request.mine;
  const PeerInfo& peers = *request.peers;
  const bool any_cuda = mine.on_cuda() || peers.on_cuda();
  const bool reach = reach_each_other(mine, peers);
  FifoHome home{.runtime = any_cuda ? request.context.runtime : nullptr};
  if (reach) {
    home.device = request.id.key.sends ? peers.device : mine.device;
    home.slots_later = request.may_borrow();
  }
  return std::make_unique<Made>(std::move(request.id),
                                DirectOptions{.rendezvous = request.context.rendezvous,
                                              .slot_stride = request.context.slot_bytes,
                                              .borrows = request.may_borrow(),
                                              .device = mine.device,
                                              .peer_device = reach ? peers.device : -1,
                                              .home = home});
}

}  // namespace

std::unique_ptr<SendEnd> make_direct_send(EndRequest& request) {
  return make_direct_end<SendEnd>(request);
}
std::unique_ptr<RecvEnd> make_direct_recv(EndRequest& request) {
  return make_direct_end<RecvEnd>(request);
}
std::unique_ptr<DeviceEnd> make_direct_on_device(EndRequest& request) {
  return make_direct_end<DeviceEnd>(request);
}

}  // namespace plexus
