// SPDX-License-Identifier: Apache-2.0
// What the host passes to the device: works, their connections, queues of works, and the few words
// through which host and device communicate while a kernel runs. Plain data in plain C++: the code
// that fills it in needs no CUDA header. All addresses are valid on the device.
//
// Lifetime: DeviceControl and DeviceQueue::done are in pinned host memory, because the host polls
// them; everything else is in memory that the device reads fast (device memory or pinned host
// memory). The device changes DeviceSend, DeviceRecv, DeviceWork::progress, DeviceWork::claimed and
// DeviceBarrier; the host does not touch these during a launch.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "kernels/layout/fifo.hpp"
#include "kernels/layout/geometry.hpp"
#include "kernels/layout/protocol.hpp"
#include "kernels/layout/types.hpp"
#include "kernels/program/program.hpp"

namespace plexus {

/// Largest number of peers that a step receives from, and that it sends to. No algorithm of
/// kernels/program has more; runs_on_device() checks it before a DeviceWork is filled in.
inline constexpr int kDevicePeersMax = 64;

inline bool runs_on_device(const Program& program) {
  for (const Lane& lane : program.lanes) {
    for (const Step& step : lane.steps) {
      if (step.receives > kDevicePeersMax || step.sends > kDevicePeersMax) {
        return false;
      }
    }
  }
  return true;
}

/// The sending end of a Fifo; one per connection, kept from launch to launch. A new end starts
/// where the Fifo is: step = taken = Fifo::taken.
struct DeviceSend {
  Fifo* fifo;
  std::byte* data;          // data areas of the slots; nullptr: see DeviceWork::slots
  std::byte* lines;         // lines of all slots; nullptr: LL and LL128 are not possible
  uint64_t slot_stride;     // bytes from one slot's data to the next
  uint64_t step;            // next slot to fill
  uint64_t taken;           // last value seen of fifo->taken
  uint64_t borrowed_until;  // slots before this one may point to user memory
  uint64_t told;            // 1 + sequence of the call that fifo->calls names last; 0: none
  int32_t peer;
  uint32_t inline_bytes_max;  // kInlineBytes; 0: the payload is always in the data area (net slots)
  uint32_t by_address;        // 1: the receiver can read this device's addresses (kPointer)
  uint32_t unused;
};

/// The receiving end of a Fifo. A new end starts where the Fifo is: step = Fifo::taken.
struct DeviceRecv {
  Fifo* fifo;
  const std::byte* data;
  const std::byte* lines;  // like the sender's
  uint64_t slot_stride;
  uint64_t step;  // next slot to read
  int32_t peer;
  uint32_t reads_pointers;  // 1: an address that the sender passes is valid on this device
};

/// Offset from an address in one of this rank's buffers to the address at which a peer in another
/// process has it mapped; kNotMapped: it has not.
struct DeviceLoan {
  uint64_t input;
  uint64_t output;
};

struct DeviceLane {
  const Step* steps;        // Lane::steps of the recorded program, byte for byte
  const uint32_t* batches;  // [step_count], see find_batches()
  uint32_t step_count;
  uint32_t awaited;  // 1: another lane waits for steps of this lane, see is_awaited()
};

inline bool is_awaited(const Program& program, int lane) {
  if (program.shares_scratch) {
    return true;
  }
  for (const Lane& other : program.lanes) {
    for (const Step& step : other.steps) {
      if (step.after.lane == lane) {
        return true;
      }
    }
  }
  return false;
}

/// For each step of a lane the number of steps from it on that may run at once, if they move
/// addresses only: all of them send to one peer each, or all receive from one, a different one
/// each. None in lanes that others wait for, step by step: what they send may be what the batch
/// waits for.
inline std::vector<uint32_t> find_batches(const Program& program, size_t lane_index) {
  const Lane& lane = program.lanes[lane_index];
  std::vector<uint32_t> batches(lane.steps.size(), 1);
  if (is_awaited(program, static_cast<int>(lane_index))) {
    return batches;
  }
  // A receiver takes the messages of a batch when all are there. Its peers may be ahead by that
  // much.
  constexpr auto kMessagesMax = static_cast<int64_t>(kSlots / 2);
  const auto peer_of = [&](const Step& step) {
    return program.peers[static_cast<size_t>(step.peers_first)];
  };
  const auto is_single = [&](const Step& step) {
    const bool sends = step.receives == 0 && step.sends == 1 && step.source != Buffer::kNone &&
                       step.target == Buffer::kNone && step.by_address;
    const bool receives = step.receives == 1 && step.sends == 0 && step.source == Buffer::kNone &&
                          step.target != Buffer::kNone && !step.completes;
    const bool is_alone = !step.with_next && !continues_message(lane, step);
    if (!(sends || receives) || step.after.lane >= 0 || !is_alone) {
      return false;
    }
    const auto messages =
        std::count_if(lane.steps.begin(), lane.steps.end(), [&](const Step& other) {
          const auto begin =
              program.peers.begin() + other.peers_first + (sends ? other.receives : 0);
          const auto end = begin + (sends ? other.sends : other.receives);
          return std::find(begin, end, peer_of(step)) != end;
        });
    return messages <= kMessagesMax;
  };
  std::vector<bool> single;
  for (const Step& step : lane.steps) {
    single.push_back(is_single(step));
  }
  for (size_t first = 0; first < lane.steps.size(); ++first) {
    std::vector<int> peers;
    for (size_t at = first; at < lane.steps.size() && peers.size() < kDevicePeersMax; ++at) {
      const Step& step = lane.steps[at];
      if (!single[at] || step.sends != lane.steps[first].sends ||
          std::find(peers.begin(), peers.end(), peer_of(step)) != peers.end()) {
        break;
      }
      peers.push_back(peer_of(step));
    }
    batches[first] = std::max(static_cast<uint32_t>(peers.size()), 1U);
  }
  return batches;
}

/// The cause of a failure, with the numbers of LaneFailure::Kind.
enum class DeviceFault : uint32_t { kNone, kOtherCall, kOtherSize, kUnmapped };

struct DeviceFailure {
  DeviceFault fault;
  int32_t peer;
  uint32_t recv_index;  // index in DeviceWork::recvs
  uint32_t size_expected;
  uint32_t size_arrived;
  uint32_t hash_expected;
  uint32_t hash_arrived;
  uint32_t unused;
  uint64_t sequence;  // number of the call
};

enum class DeviceStop : uint32_t { kGoOn, kAborted, kFailed };

/// One per communicator and rank, in pinned memory. `stop`: the host writes kAborted, and every
/// waiting block ends soon; the device writes kFailed after `failure`.
struct alignas(kCacheLine) DeviceControl {
  DeviceStop stop;
  uint32_t unused;
  DeviceFailure failure;
};

/// One program ready to run on the device: the members of the host executor's `Work`.
// NOLINTNEXTLINE(cppcoreguidelines-pro-type-member-init): like all here, filled over zeroes
struct DeviceWork {
  const DeviceLane* lanes;
  DeviceSend* const* sends;  // [Program::peers]; nullptr where the peer only sends to this rank
  // [Program::peers]; nullptr where the peer only receives from this rank
  DeviceRecv* const* recvs;
  // [Program::peers] in place of DeviceSend::data, which connections by address have only for works
  // that need it; nullptr: `data` is there
  std::byte* const* slots;
  const DeviceLoan* loans;  // [Program::peers]; nullptr: no other process maps this rank's memory
  uint64_t* progress;       // [lane_count] steps done in this call; zero outside it
  // set by the block that writes `failure`; in device memory, one per control, initially zero
  uint32_t* claimed;
  DeviceControl* control;
  std::byte* input;
  std::byte* output;
  std::byte* scratch;
  uint64_t open_bytes;  // of the output that peers may write results to (WritableOutput); 0: none
  Geometry geometry;
  CallRecord call;
  ReduceOp op;
  // the multiplier, in place of ReduceOp::scalar_bits (ncclScalarDevice), read when the work
  // begins; nullptr: there is none
  const void* scalar;
  uint32_t lane_count;
  uint32_t peer_count;
  uint32_t slot_bytes;
  uint32_t borrow_bytes_min;
  uint8_t scalar_bytes;
  DataType type;
  Protocol protocol;
  bool exchanges_empty;
  bool has_lines;       // all connections have
  bool shares_scratch;  // Program::shares_scratch: lanes keep in step from loop to loop
  bool closes_output;   // peers must not write to it, though `open_bytes` is not 0
};

/// Progress of a queue that a block serves in turn with others.
struct DeviceTurn {
  uint32_t work;
  uint32_t loop;
  uint32_t step;
  uint32_t before_bytes;  // of the chunks before the current step's in its message
  uint64_t done_bytes;    // moved in the current step
};

/// Barrier for the blocks of a queue between two works; in device memory, zero between launches.
struct DeviceBarrier {
  uint64_t arrived;  // blocks that have finished the work
  uint64_t opened;   // number of works after which all blocks have met
  uint64_t left;     // blocks that have ended; above them in the word, those that were stopped
  DeviceTurn turn;
};

/// Works that run one after the other, each on as many blocks as it has lanes. The works are
/// distinct and belong to one communicator and rank (one DeviceControl). `done`, in pinned memory,
/// is written once, when no block uses the queue, its works and their tables any more: kQueueLeft
/// plus the number of its works, or kQueueLeft alone where it was stopped; the host zeroes it.
inline constexpr uint64_t kQueueLeft = uint64_t{1} << 63;
struct DeviceQueue {
  const DeviceWork* works;  // [work_count]
  uint32_t work_count;
  uint32_t block_count;  // most lanes of a work
  DeviceBarrier* barrier;
  uint64_t* done;
  // [2] begin and end of its work in ns, in pinned memory; nullptr: not recorded
  uint64_t* times;
  DeviceQueue* next;  // served in turn by the same block; nullptr: last one
};

/// The task of one block of a launch: lane `lane` of every work of `queue`; or, in turn, all works
/// of `queue` and of the queues linked to it, each of which has one lane.
struct alignas(kCacheLine) DeviceBlock {
  DeviceQueue queue;
  uint32_t lane;
  uint32_t in_turn;  // 0 or 1
};

/// Whether a block may run the program in turn with others.
inline bool runs_in_turn(const Program& program) {
  if (program.lanes.size() != 1) {
    return false;
  }
  for (const Step& step : program.lanes.front().steps) {
    if (step.after.lane >= 0) {
      return false;
    }
  }
  return true;
}

// NOLINTBEGIN(readability-magic-numbers): the layout that host and device agree on
static_assert(sizeof(DeviceSend) == 80);
static_assert(sizeof(DeviceRecv) == 48);
static_assert(sizeof(DeviceLoan) == 16);
static_assert(sizeof(DeviceLane) == 24);
static_assert(sizeof(DeviceFailure) == 40);
static_assert(sizeof(DeviceControl) == kCacheLine);
static_assert(sizeof(DeviceWork) == 240);
static_assert(sizeof(DeviceQueue) == 48);
static_assert(sizeof(DeviceBlock) == kCacheLine);
// NOLINTEND(readability-magic-numbers)
static_assert(std::is_trivially_copyable_v<Step>);
static_assert(std::is_trivially_copyable_v<DeviceWork>);

}  // namespace plexus
