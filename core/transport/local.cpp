// SPDX-License-Identifier: Apache-2.0
#include "core/transport/local.hpp"

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

Result<std::shared_ptr<LocalFifo>> LocalMeetings::meet(const Key& key,
                                                       size_t slot_stride,
                                                       const FifoHome& home) {
  const std::lock_guard lock(mutex_);
  const auto at = waiting_.find(key);
  if (at != waiting_.end()) {
    auto fifo = std::move(at->second);
    waiting_.erase(at);
    return fifo;
  }
  PLEXUS_TRY(fifo, LocalFifo::create(slot_stride, home));
  waiting_.emplace(key, fifo);
  return fifo;
}

void LocalMeetings::forget(uint64_t group, int rank) {
  const std::lock_guard lock(mutex_);
  std::erase_if(waiting_, [&](const auto& entry) {
    return entry.first.group == group && (entry.first.source == rank || entry.first.target == rank);
  });
}

Result<bool> LocalEnd::progress_connect() {
  const bool sends = key().sends;
  PLEXUS_TRY(fifo, options_.meetings->meet({.group = options_.group,
                                            .source = sends ? options_.rank : key().peer,
                                            .target = sends ? key().peer : options_.rank,
                                            .index = key().index},
                                           options_.slot_stride, options_.home));
  fifo_ = std::move(fifo);
  std::byte* const memory = fifo_->memory();
  const Reach reach = options_.borrows ? Reach::kProcess : Reach::kNothing;
  if (options_.device >= 0) {
    if (options_.peer_device >= 0) {  // reads what the peer lends, writes into its Fifo
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
