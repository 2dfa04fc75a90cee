// SPDX-License-Identifier: Apache-2.0
// A plan in the form that kernels read. What never changes (steps, connections, scratch memory) is
// copied to the device once. Each launch has its own copies of the works in pinned memory, with
// that call's buffers, so that a plan may be in flight several times. Kernels of one communicator
// run one after the other, so they can share the rest.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "core/base/result.hpp"
#include "core/engine/execution.hpp"
#include "core/schedule/device_rank.hpp"
#include "core/transport/memory/peer_mapped_memory.hpp"

namespace plexus {

class DevicePlan {
 public:
  /// Requires that all ends of `execution` are connected. `has_private_buffers`: for calls whose
  /// buffers peers cannot use (close_buffers()).
  static Result<std::unique_ptr<DevicePlan>> build(DeviceRank& rank,
                                                   Execution& execution,
                                                   bool has_private_buffers);

  /// It goes while other kernels run.
  void retire(DeviceRank& rank);

  /// Number of entries of each kind that a launch needs for this plan.
  struct Size {
    size_t blocks = 0;
    size_t queues = 0;
    size_t works = 0;
    size_t loans = 0;
    size_t turns = 0;  // queues that can share one block, which serves them in turn
    Size& operator+=(const Size& other) {
      blocks += other.blocks;
      queues += other.queues;
      works += other.works;
      loans += other.loans;
      turns += other.turns;
      return *this;
    }
  };
  [[nodiscard]] Size size() const noexcept { return size_; }
  /// Threads per block: as many as a slice keeps busy.
  [[nodiscard]] uint32_t threads() const noexcept { return threads_; }
  /// Index of `work` among a launch's works.
  [[nodiscard]] size_t place_of(const Work& work) const noexcept;

  /// The tables of one launch, each with room for size() entries.
  struct Places {
    DeviceBlock* blocks;
    DeviceQueue* queues;
    DeviceWork* works;
    uint64_t* done;  // by queue
    DeviceLoan* loans;
    uint64_t* times;  // two per queue; nullptr: not recorded
  };
  /// Writes the launch's tables with the buffers and calls that the execution's works have now.
  /// `in_turn` not null: receives the queues that have no block of their own. Returns the end of
  /// the blocks written.
  DeviceBlock* fill(const Places& places, std::vector<DeviceQueue*>* in_turn) const;

  /// The work's buffers in the launch at `places` cannot be used by peers: bytes go through slots.
  void close_buffers(const Places& places, const Work& work) const;

  /// A work's buffers that peers in other processes read in place during the launch at `places`.
  struct PeerMappedBuffers {
    const Work& work;
    uint64_t input_bytes;
    uint64_t output_bytes;
    bool in_graph;
  };
  Result<void> map_for_peers(const Places& places,
                             const PeerMappedBuffers& buffers,
                             PeerMappedMemory& memory) const;

 private:
  struct Queue {
    std::vector<const Work*> works;
    uint32_t blocks = 0;  // largest number of lanes of a work
    bool turns = true;
    DeviceBarrier* barrier = nullptr;
  };
  std::vector<Queue> queues_;
  // all queues' works in order, without what changes from call to call
  std::vector<DeviceWork> works_;
  std::vector<std::vector<int>> readers_;  // by work and peer: the rank that may read this rank's
                                           // memory in place, or -1; empty: none may
  std::vector<std::pair<const Work*, size_t>> places_;  // index of each work, by its address
  Size size_;
  uint32_t threads_ = 0;
  DeviceMemory tables_;
  DeviceMemory scratch_;
};

/// Size of a launch's tables in one block of memory, and their offsets.
size_t launch_bytes(const DevicePlan::Size& size);
/// What launches that are in flight together need, of a rank that has so many blocks of its device.
size_t launch_bytes_in_flight(size_t blocks);
DevicePlan::Places launch_places(std::byte* memory, const DevicePlan::Size& size);

}  // namespace plexus
