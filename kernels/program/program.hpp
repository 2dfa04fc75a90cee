// SPDX-License-Identifier: Apache-2.0
// A program: the verbs that one rank executes in one loop of an algorithm, recorded once and
// replayed by the executors, the verifier and the simulator. It contains only chunk indices and
// peers; sizes, types, protocols and transports are decided elsewhere.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/algorithms/prims.hpp"
#include "kernels/layout/macros.hpp"

namespace plexus {

/// Not before step `step` of lane `lane` is done (in the same loop). lane < 0: no condition.
struct After {
  int lane = -1;
  int step = -1;
  friend bool operator==(const After&, const After&) = default;
};

/// One verb in its general form: combines what arrives from `receives` peers with the local
/// `source` (in the order of the peer list, the local part at `own_position`), stores the result at
/// `target`, and sends it to `sends` peers. Without some of these parts it is NCCL's send,
/// recv_reduce_send, recv_copy_send, ...
struct Step {
  Buffer source = Buffer::kNone;
  Buffer target = Buffer::kNone;
  bool completes = false;    // the value is final: the post-operation (integer average) applies
  bool by_address = true;    // receivers may read the chunk in place instead of a copy
  bool accumulates = false;  // no message: the source is combined into the target
  bool with_next = false;    // the chunk travels in one message with that of the next step
  int source_chunk = 0;
  int target_chunk = 0;
  int peers_first = 0;  // index in Program::peers: the receive peers, then the send peers
  int receives = 0;
  int sends = 0;
  int own_position = 0;  // in the order of a reduction: number of peers before the local source
  int chunks = 1;  // more only in a sketch (RecordInput): so many, whose peers these are, go as one
  After after = {};
  friend bool operator==(const Step&, const Step&) = default;
};

/// Whether the step makes a chunk of the result that its receivers store in the same chunk of their
/// outputs. The sender may do that for them: nothing there is needed any more, because the result
/// has their contributions. Proved of the table's algorithms, not of programs from files.
PLEXUS_HOST_DEVICE constexpr bool delivers(const Step& step) {
  return step.completes && step.receives > 0 && step.source != Buffer::kNone &&
         step.target == Buffer::kOutput && step.sends > 0;
}

/// Whether the step only waits for its `after`.
PLEXUS_HOST_DEVICE constexpr bool only_waits(const Step& step) {
  return step.receives == 0 && step.sends == 0 && step.source == Buffer::kNone &&
         step.target == Buffer::kNone;
}

/// The number of steps from `step` on whose chunks travel in one message; `step` is its first. Such
/// steps name the same peers, and run when all of the message can be received and sent.
PLEXUS_HOST_DEVICE constexpr size_t steps_of_message(const Step* step) {
  size_t count = 1;
  while (step[count - 1].with_next) {
    ++count;
  }
  return count;
}

/// Steps that run strictly in order. Two ranks may have several connections; all messages of a lane
/// use those with its number.
struct Lane {
  std::vector<Step> steps;
  int connection = 0;
};
inline constexpr int kConnectionsMax = 64;

/// Whether the chunk of a step of `lane` follows that of the step before it in one message.
inline bool continues_message(const Lane& lane, const Step& step) {
  return &step != lane.steps.data() && (&step - 1)->with_next;
}

/// The work of one rank in one loop. A value; shared read-only by all plans that replay it.
struct Program {
  int rank = 0;
  int nranks = 0;
  int chunks = 0;                   // chunk indices are 0..chunks-1
  int scratch_chunks = 0;           // scratch memory needed, in chunks
  std::vector<int> scratch_blocks;  // by scratch chunk, see At::block
  // Chunk c of a buffer is its c-th part, of equal length for all c. Otherwise the chunks of a loop
  // are consecutive, or the blocks of a blocked collective.
  bool divides_buffer = false;
  // Lanes use each other's scratch, so that none begins a loop before all have ended the last one.
  bool shares_scratch = false;
  std::vector<Lane> lanes;
  std::vector<int> peers;

  [[nodiscard]] std::span<const int> recv_peers(const Step& step) const {
    return std::span(peers).subspan(static_cast<size_t>(step.peers_first),
                                    static_cast<size_t>(step.receives));
  }
  [[nodiscard]] std::span<const int> send_peers(const Step& step) const {
    return std::span(peers).subspan(
        static_cast<size_t>(step.peers_first) + static_cast<size_t>(step.receives),
        static_cast<size_t>(step.sends));
  }
  /// The rank whose block a chunk belongs to, where chunk index = block; -1: it is not known.
  [[nodiscard]] int block_of(Buffer buffer, int chunk) const {
    const auto index = static_cast<size_t>(chunk);
    return buffer != Buffer::kScratch      ? chunk
           : index < scratch_blocks.size() ? scratch_blocks[index]
                                           : -1;
  }
  /// The largest number of chunks in a message. Their bytes together must fit a slot.
  [[nodiscard]] size_t chunks_of_longest_message() const {
    size_t most = 1;
    for (const Lane& lane : lanes) {
      size_t count = 1;
      for (const Step& step : lane.steps) {
        count = step.with_next ? count + 1 : 1;
        most = std::max(most, count);
      }
    }
    return most;
  }
  [[nodiscard]] size_t step_count() const {
    size_t count = 0;
    for (const Lane& lane : lanes) {
      count += lane.steps.size();
    }
    return count;
  }
};

/// In all programs.
inline size_t chunks_of_longest_message(std::span<const Program> programs) {
  size_t most = 1;
  for (const Program& program : programs) {
    most = std::max(most, program.chunks_of_longest_message());
  }
  return most;
}

}  // namespace plexus
