// SPDX-License-Identifier: Apache-2.0
// A plan as kernels read it. What never changes (steps, connections, scratch memory) is put on the
// device once; each launch has its own copies of the works, in pinned memory, with that call's
// buffers, so that a plan may be under way any number of times. Kernels of one communicator run one
// after the other, which is why they can share the rest.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "core/base/result.hpp"
#include "core/engine/execution.hpp"
#include "core/schedule/device_rank.hpp"
#include "core/transport/peer_mapped_memory.hpp"

namespace plexus {

class DevicePlan {
 public:
  /// Of an execution whose ends are all connected.
  static Result<std::unique_ptr<DevicePlan>> build(DeviceRank& rank, Execution& execution);

  /// What a launch has of this plan.
  struct Size {
    size_t blocks = 0;
    size_t queues = 0;
    size_t works = 0;
    size_t loans = 0;
    size_t turns = 0;  // queues whose blocks may become one, which serves them in turn
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
  /// Of a block: as many as its slices keep busy.
  [[nodiscard]] uint32_t threads() const noexcept { return threads_; }
  /// Which of a launch's works `work` becomes.
  [[nodiscard]] size_t place_of(const Work& work) const noexcept;

  /// The places of one launch, each with room for size().
  struct Places {
    DeviceBlock* blocks;
    DeviceQueue* queues;
    DeviceWork* works;
    const DeviceWork** lists;
    uint64_t* done;  // by queue
    DeviceLoan* loans;
    uint64_t* times;  // two by queue; nullptr: nobody asks
  };
  /// Writes the launch's part, with buffers and calls as the execution's works have them now.
  /// `in_turn` not null: gets the queues that have no block of their own. Returns behind the last
  /// block.
  DeviceBlock* fill(const Places& places, std::vector<DeviceQueue*>* in_turn) const;

  /// A work's buffers, which peers in other processes read in place during the launch at `places`.
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
    uint32_t blocks = 0;  // most lanes of a work
    bool turns = true;
    DeviceBarrier* barrier = nullptr;
  };
  std::vector<Queue> queues_;
  std::vector<DeviceWork> works_;          // all queues', in order: all but what changes
  std::vector<std::vector<int>> readers_;  // by work: the peers that may read our memory in place,
                                           // -1: not that one; empty: none may
  std::vector<std::pair<const Work*, size_t>> places_;  // of works, by their address
  Size size_;
  uint32_t threads_ = 0;
  DeviceMemory tables_;
  DeviceMemory scratch_;
};

/// The whole launch in one block of memory: how many bytes, and where the parts begin.
size_t launch_bytes(const DevicePlan::Size& size);
DevicePlan::Places launch_places(std::byte* memory, const DevicePlan::Size& size);

}  // namespace plexus
