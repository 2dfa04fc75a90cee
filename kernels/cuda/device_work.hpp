// SPDX-License-Identifier: Apache-2.0
// What the host hands to the device: works, their connections, queues of works, and the few words
// by which host and device talk while a kernel runs. Plain data, plain C++: whoever fills it needs
// no CUDA header. All addresses are the device's.
//
// Lifetime: everything but DeviceControl and DeviceQueue::done lies in memory that the device reads
// fast (device memory, or pinned host memory); those two lie in pinned host memory, since the host
// polls them. The device changes DeviceSend, DeviceRecv, DeviceWork::progress, DeviceWork::claimed
// and DeviceBarrier; the host does not touch these while a launch is under way.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "kernels/layout/fifo.hpp"
#include "kernels/layout/geometry.hpp"
#include "kernels/layout/protocol.hpp"
#include "kernels/layout/types.hpp"
#include "kernels/program/program.hpp"

namespace plexus {

/// Most peers that a step receives from, and most that it sends to. No algorithm of kernels/program
/// has more; who fills a DeviceWork checks it with runs_on_device().
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

/// The sending end of a Fifo; one per connection, kept from launch to launch. A fresh end begins
/// where the Fifo stands: step = taken = Fifo::taken.
struct DeviceSend {
  Fifo* fifo;
  std::byte* data;          // of the slots
  std::byte* lines;         // of all slots; nullptr: LL and LL128 are not possible
  uint64_t slot_stride;     // bytes from one slot's data to the next
  uint64_t step;            // next slot to fill
  uint64_t taken;           // last value seen of fifo->taken
  uint64_t borrowed_until;  // slots before this one may point to user memory
  uint64_t told;            // 1 + sequence of the call that fifo->calls names last; 0: none
  int32_t peer;
  uint32_t inline_bytes_max;  // kInlineBytes; 0: payload always in the data area (net slots)
  uint32_t by_address;        // 1: the receiver can read this device's addresses (kPointer)
  uint32_t unused;
};

/// The receiving end. A fresh end begins where the Fifo stands: step = Fifo::taken.
struct DeviceRecv {
  Fifo* fifo;
  const std::byte* data;
  const std::byte* lines;  // as the sender's
  uint64_t slot_stride;
  uint64_t step;  // next slot to read
  int32_t peer;
  uint32_t reads_pointers;  // 1: an address that the sender passes is valid on this device
};

/// What to add to an address of a buffer of ours so that the peer can use it, in a process of its
/// own; kNotMapped: it cannot.
struct DeviceLoan {
  uint64_t input;
  uint64_t output;
};

struct DeviceLane {
  const Step* steps;  // Lane::steps of the recorded program, byte for byte
  uint32_t step_count;
  uint32_t awaited;  // 1: a step of another lane waits for one of this lane, see is_awaited()
};

inline bool is_awaited(const Program& program, int lane) {
  for (const Lane& other : program.lanes) {
    for (const Step& step : other.steps) {
      if (step.after.lane == lane) {
        return true;
      }
    }
  }
  return false;
}

/// Why a work failed: the numbers are those of LaneFailure::Kind.
enum class DeviceFault : uint32_t { kNone, kOtherCall, kOtherSize, kUnmapped };

struct DeviceFailure {
  DeviceFault fault;
  int32_t peer;
  uint32_t recv_index;  // in DeviceWork::recvs
  uint32_t size_expected;
  uint32_t size_arrived;
  uint32_t hash_expected;
  uint32_t hash_arrived;
  uint32_t unused;
  uint64_t sequence;  // of the call
};

enum class DeviceStop : uint32_t { kGoOn, kAborted, kFailed };

/// One per communicator and rank, in pinned memory. `stop`: the host writes kAborted, and every
/// block that waits ends soon; the device writes kFailed, after `failure`.
struct alignas(kCacheLine) DeviceControl {
  DeviceStop stop;
  uint32_t unused;
  DeviceFailure failure;
};

/// One program ready to run on the device: `Work` of the host executor, member for member.
// NOLINTNEXTLINE(cppcoreguidelines-pro-type-member-init): like all here, filled over zeroes
struct DeviceWork {
  const DeviceLane* lanes;
  DeviceSend* const* sends;  // [Program::peers], nullptr where the peer only sends to us
  DeviceRecv* const* recvs;  // [Program::peers], likewise
  const DeviceLoan* loans;   // [Program::peers]; nullptr: no other process maps anything
  uint64_t* progress;        // [lane_count] steps done in this call; zero before and after it
  uint32_t* claimed;         // who writes `failure`; in device memory, one per control, zero
  DeviceControl* control;
  std::byte* input;
  std::byte* output;
  std::byte* scratch;
  Geometry geometry;
  CallRecord call;
  ReduceOp op;
  uint32_t lane_count;
  uint32_t slot_bytes;
  uint32_t borrow_bytes_min;
  DataType type;
  Protocol protocol;
  bool exchanges_empty;
  uint8_t unused;
};

/// How far a queue is that a block serves in turn with others.
struct DeviceTurn {
  uint32_t work;
  uint32_t loop;
  uint32_t step;
  uint32_t unused;
  uint64_t done_bytes;  // of the step
};

/// Where the blocks of a queue meet between two works; in device memory, zero between launches.
struct DeviceBarrier {
  uint64_t arrived;  // blocks that are through with the work
  uint64_t opened;   // works after which all have met
  DeviceTurn turn;
};

/// Works that run one after the other, each by as many blocks as it has lanes. The works are
/// distinct and belong to one communicator and rank (one DeviceControl). `done`, in pinned memory,
/// counts the works that are finished within this launch; the host zeroes it.
struct DeviceQueue {
  const DeviceWork* const* works;
  uint32_t work_count;
  uint32_t block_count;  // most lanes of a work
  DeviceBarrier* barrier;
  uint64_t* done;
  uint64_t* times;    // [2] when its work began and ended, in pinned memory; nullptr: nobody asks
  DeviceQueue* next;  // that the same block serves in turn; nullptr: the last
};

/// What block number i of a launch does: lane `lane` of every work of `queue`; or, in turn, all
/// works of `queue` and of those behind it, each with one lane only.
struct DeviceBlock {
  DeviceQueue* queue;
  uint32_t lane;
  uint32_t in_turn;  // 0 or 1
};

/// May a block run the program in turn with others?
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
static_assert(sizeof(DeviceLane) == 16);
static_assert(sizeof(DeviceFailure) == 40);
static_assert(sizeof(DeviceControl) == kCacheLine);
static_assert(sizeof(DeviceWork) == 208);
static_assert(sizeof(DeviceQueue) == 48);
static_assert(sizeof(DeviceBlock) == 16);
// NOLINTEND(readability-magic-numbers)
static_assert(std::is_trivially_copyable_v<Step>);
static_assert(std::is_trivially_copyable_v<DeviceWork>);

}  // namespace plexus
