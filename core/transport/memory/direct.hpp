// SPDX-License-Identifier: Apache-2.0
// The direct transport: both ranks in one process. Slots in private memory for what has no home in
// a user buffer; everything else the receiver reads in the sender's user buffer. The memory of two
// CUDA ranks that reach each other lies on the receiver's device.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <tuple>

#include "core/device/device_memory.hpp"
#include "core/transport/transport_table.hpp"

namespace plexus {

/// Where a connection's memory lies.
struct FifoHome {
  DeviceRuntime* runtime = nullptr;  // nullptr: only host ranks use it
  int device = -1;                   // -1: host memory
  bool slots_later = false;          // data areas only for messages that do not go by address
};

/// Memory that the two ends own together (shared_ptr): freed with the later end.
class LocalFifo {
 public:
  static Result<std::shared_ptr<LocalFifo>> create(size_t slot_stride, const FifoHome& home = {});
  ~LocalFifo();
  LocalFifo(const LocalFifo&) = delete;
  LocalFifo& operator=(const LocalFifo&) = delete;
  /// nullptr: on a device.
  [[nodiscard]] std::byte* memory() const noexcept { return memory_; }
  /// As kernels of `device`, and of all others, see it. Host memory is registered by the first end
  /// that asks, in its own thread: that of a host rank may be the one that moves network slots.
  Result<std::byte*> show_to_devices(DeviceRuntime& runtime, int device);
  /// The data areas, if they come later.
  Result<std::byte*> make_slots(size_t slot_stride);
  /// Size of all of its memory.
  [[nodiscard]] size_t held_bytes() const noexcept {
    return held_bytes_.load(std::memory_order_relaxed);
  }

 private:
  LocalFifo() = default;
  std::byte* memory_ = nullptr;
  size_t size_bytes_ = 0;
  std::atomic<size_t> held_bytes_{0};
  FifoHome home_;
  std::mutex mutex_;
  DeviceMemory on_device_;  // guarded by mutex_; goes before what it registers
  DeviceMemory slots_;      // guarded by mutex_
};

/// Where the ends of a process meet. A rank may come, fill its slots and leave before its peer
/// comes: what it made is kept until the peer has taken it, or has left too. Threads: any.
class LocalRendezvous {
 public:
  struct Key {
    uint64_t group;  // the communicator
    int source;
    int target;
    int index;
    // NOLINTNEXTLINE(modernize-use-nullptr): clang-tidy 14 misreads the comparison with 0
    friend auto operator<=>(const Key&, const Key&) = default;
  };
  /// First comer makes it, second takes it out. Each end, `rank` of the two, must call until it has
  /// it, and then no more. Both say the same of stride and home. nullptr: the other end's rank has
  /// left and will not come.
  Result<std::shared_ptr<LocalFifo>> meet(const Key& key,
                                          int rank,
                                          size_t slot_stride,
                                          const FifoHome& home);
  /// `rank` will not come any more. `local_ranks`: how many ranks of the group are in this process;
  /// when all have left, nothing of the group is kept.
  void leave(uint64_t group, int rank, int local_ranks);
  /// What `rank` has made and its peers have not taken goes: they will not come for it.
  void withdraw(uint64_t group, int rank);
  /// Groups of which something is kept.
  [[nodiscard]] size_t groups() const;

 private:
  struct Waiting {
    int maker;
    std::shared_ptr<LocalFifo> fifo;
  };
  struct Group {
    std::map<Key, Waiting> waiting;
    std::set<int> left;
  };
  mutable std::mutex mutex_;
  std::map<uint64_t, Group> groups_;  // guarded by mutex_
};

/// What the ends of the direct transport are made with.
struct DirectOptions {
  LocalRendezvous* rendezvous;
  size_t slot_stride;
  bool borrows;          // the receiver may read user buffers
  int device = -1;       // the one that this end's rank computes on; -1: the host
  int peer_device = -1;  // the peer's, when this rank reaches it; -1: it does not
  FifoHome home;         // where the connection's memory lies
};

std::unique_ptr<SendEnd> make_direct_send(EndRequest& request);
std::unique_ptr<RecvEnd> make_direct_recv(EndRequest& request);
std::unique_ptr<DeviceEnd> make_direct_on_device(EndRequest& request);

}  // namespace plexus
