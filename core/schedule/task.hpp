// SPDX-License-Identifier: Apache-2.0
// One user call as a value. Its types: CallShape is what checks and plans depend on, Task the
// checked call that core/schedule turns into a plan, CallRecord (kernels/layout/fifo.hpp) what the
// ranks that take part in it compare.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/device/device_runtime.hpp"
#include "kernels/layout/collective.hpp"
#include "kernels/layout/types.hpp"

namespace plexus {

class Communicator;
class HostStream;

inline constexpr int kNoOp = -1;
inline constexpr int kFirstUserOp = 5;  // ncclNumOps; from here on ncclRedOpCreatePreMulSum's

/// What a call asks for itself (ncclCollConfig_t).
struct CallSettings {
  uint64_t selection = 0;    // AlgorithmSelection
  uint8_t channels_min = 0;  // 0: the communicator's
  uint8_t channels_max = 0;
  bool is_forced = false;  // no other algorithm if none of the selection is possible
  bool is_deterministic = false;
  bool explains = false;      // see Task::on_choice
  bool has_checksum = false;  // of its messages over networks
  uint32_t deadline_ms = 0;   // see Execution::deadline
  friend bool operator==(const CallSettings&, const CallSettings&) = default;
};

/// Blocks with counts of their own, of an all-gather or a reduce-scatter. Counts are equal on all
/// ranks. Empty blocks have displacement 0.
struct CallBlocks {
  std::vector<uint64_t> counts;         // [nranks]
  std::vector<uint64_t> displacements;  // [nranks] in this rank's buffer that has all blocks
  uint64_t own = 0;                     // this rank's count
  uint64_t end = 0;                     // elements up to where that buffer's last block ends
  friend bool operator==(const CallBlocks&, const CallBlocks&) = default;
};
/// Compared by value.
struct SharedBlocks : std::shared_ptr<const CallBlocks> {
  friend bool operator==(const SharedBlocks& a, const SharedBlocks& b) {
    return a.get() == b.get() || (a.get() != nullptr && b.get() != nullptr && *a == *b);
  }
};

/// All of a call but addresses, streams and scalars: calls with equal shapes are checked and
/// planned alike. Its numbers are as the user passed them, until core/api has checked them.
struct CallShape {
  Collective collective = Collective::kAllReduce;
  int type = 0;    // ncclDataType_t
  int op = kNoOp;  // ncclRedOp_t; in a Task kFirstUserOp stands for all that users defined
  int root = 0;    // of a rooted collective; the peer of kSend and kRecv
  /// Elements per rank as NCCL documents them (AllGather: sent by each rank, ReduceScatter:
  /// received by each, AlltoAll, Gather and Scatter: per pair of ranks).
  uint64_t count = 0;
  bool has_send = false;  // the address is not NULL
  bool has_recv = false;
  bool in_place = false;
  /// A kSend or kRecv of a collective of plexus.h with counts per rank. Those pair with each other,
  /// never with what ncclSend and ncclRecv exchange beside them.
  bool of_vector = false;
  /// All its buffers, on all ranks, are in windows with NCCL_WIN_COLL_SYMMETRIC: ranks know of each
  /// other that they read and write these in place.
  bool in_windows = false;
  SharedBlocks blocks = {};  // nullptr: all have `count` elements; else that is the largest
  CallSettings settings = {};

  /// Once checked.
  [[nodiscard]] DataType datatype() const noexcept { return static_cast<DataType>(type); }
  friend bool operator==(const CallShape&, const CallShape&) = default;
};

/// Receives one line of text: which algorithm a call has, and why.
struct ChoiceCallback {
  void (*function)(void* user, const char* text) = nullptr;
  void* user = nullptr;
};

struct Task {
  Communicator* comm = nullptr;
  CallShape shape;
  ReduceOp op;  // complete: averages and user scalars are already resolved
  const void* send = nullptr;
  void* recv = nullptr;
  HostStream* stream = nullptr;          // of host ranks; nullptr: inline, complete on return
  DeviceStream device_stream = nullptr;  // of CUDA ranks, as the user passed it
  /// The multiplier's address for ncclScalarDevice: read when the collective runs. nullptr: `op`
  /// holds it.
  const void* scalar = nullptr;
  const void* caller = nullptr;  // the place in the program (PLEXUS_CHECK=1)
  uint64_t tag = 0;              // the user's, for profilers
  ChoiceCallback on_choice = {};
};

/// Report for tools (`plexus perf`): what the last collective on `comm` used.
struct LastChoice {
  const char* algorithm;
  const char* protocol;
  int channels;
};

}  // namespace plexus
