// SPDX-License-Identifier: Apache-2.0
#include "core/transport/direct.hpp"

#include <cerrno>
#include <cstring>
#include <sys/mman.h>

#include "core/transport/fifo_memory.hpp"

namespace plexus {

Result<std::shared_ptr<LocalFifo>> LocalFifo::create(size_t slot_stride, const FifoHome& home) {
  std::shared_ptr<LocalFifo> fifo(new LocalFifo());
  const size_t size_bytes = fifo_memory_bytes(slot_stride);
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
                "cannot map {} bytes for a connection's slots: {}; use fewer ranks per "
                "process, or a smaller NCCL_BUFFSIZE",
                size_bytes, std::strerror(errno));
  }
  fifo->memory_ = static_cast<std::byte*>(memory);
  fifo->size_bytes_ = size_bytes;
  if (home.runtime != nullptr) {
    PLEXUS_TRY(registered, register_host(*home.runtime, home.user, memory, size_bytes));
    fifo->on_device_ = std::move(registered);
  }
  return fifo;
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
  const auto at = group.waiting.find(key);
  if (at != group.waiting.end()) {
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
  left.left.insert(rank);
  if (left.left.size() == static_cast<size_t>(local_ranks)) {
    groups_.erase(group);
    return;
  }
  std::erase_if(left.waiting, [&](const auto& entry) {  // for this rank, which does not come
    const Key& key = entry.first;
    return entry.second.maker != rank && (key.source == rank || key.target == rank);
  });
}

size_t LocalRendezvous::groups() const {
  const std::lock_guard lock(mutex_);
  return groups_.size();
}

Result<bool> DirectEnd::progress_connect() {
  const bool sends = key().sends;
  PLEXUS_TRY(fifo, options_.rendezvous->meet({.group = options_.group,
                                              .source = sends ? options_.rank : key().peer,
                                              .target = sends ? key().peer : options_.rank,
                                              .index = key().index},
                                             options_.rank, options_.slot_stride, options_.home));
  if (fifo == nullptr) {
    return false;  // for ever: who waits long learns that the peer has left
  }
  fifo_ = std::move(fifo);
  std::byte* const memory = fifo_->memory();
  const Reach reach = options_.borrows ? Reach::kProcess : Reach::kNothing;
  if (options_.device >= 0) {
    if (options_.peer_device >= 0) {  // reads the peer's memory, writes into its Fifo
      PLEXUS_TRY(options_.home.runtime->enable_reach(options_.device, options_.peer_device));
    }
    device_view = view_for_devices(fifo_->seen_by_devices(), options_.slot_stride, reach);
  } else if (sends) {
    send = SendConnection(fifo_at(memory), slots_at(memory),
                          {.peer = key().peer,
                           .reach = reach,
                           .slot_stride = options_.slot_stride,
                           .lines = lines_at(memory)});
  } else {
    recv = RecvConnection(fifo_at(memory), slots_at(memory),
                          {.peer = key().peer,
                           .slot_stride = options_.slot_stride,
                           .lines = lines_at(memory),
                           .places = nullptr});
  }
  connected_ = true;
  in_one_process_ = options_.device < 0;
  return true;
}

}  // namespace plexus
