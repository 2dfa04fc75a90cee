// SPDX-License-Identifier: Apache-2.0
// Divides a call into channel parts, loops and chunks. Pure, so that all ranks compute the same
// spans.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/layout/collective.hpp"
#include "kernels/layout/geometry.hpp"
#include "kernels/layout/protocol.hpp"
#include "kernels/program/algorithms.hpp"

namespace plexus {

/// How the chunks of a call become messages; equal on all ranks.
struct MessageForm {
  bool joins = false;   // RecordInput::joins
  size_t chunks = 1;    // in the longest message of all ranks' programs
  bool evenly = false;  // the last loop is divided to the element, not by cache lines
};

struct PartitionInput {
  Collective collective = Collective::kAllReduce;
  uint64_t count = 0;  // as in Task
  uint32_t element_bytes = 1;
  int nranks = 1;
  int chunks = 1;               // chunk indices per loop of the program
  int scratch_chunks = 0;       // the program's
  bool divides_buffer = false;  // the program's; then `chunks` divides the larger buffer
  MessageForm messages = {};
  int channel = 0;
  int channels = 1;
  uint32_t slot_bytes = 0;
};

/// The part of `channel`. Its messages fit in a slot; a part may be empty (0 loops).
Geometry compute_partition(const PartitionInput& input);

/// The same for blocks with counts of their own; the call's count is the largest.
struct BlockedPartition {
  Geometry geometry;
  std::vector<BlockPart> blocks;
};
/// `displacements`: where this rank's larger buffer has the blocks.
BlockedPartition compute_partition(const PartitionInput& input,
                                   std::span<const uint64_t> counts,
                                   std::span<const uint64_t> displacements);

/// What decides, beside the call itself, whether chunks travel together; equal on all ranks.
struct MessageInput {
  const Algorithm* algorithm = nullptr;
  Protocol protocol = Protocol::kSimple;
  bool in_memory = false;  // all ranks share memory
  bool on_device = false;  // some rank is a CUDA rank, which joins chunks in slots only
};

/// The call takes the algorithm's form with messages of several chunks (JoinedForm) if it has one
/// and the longest message is short enough. `call`: collective, count, element, ranks, channels and
/// slot; of any channel.
MessageForm message_form_of(const MessageInput& input, const PartitionInput& call);

/// How many of `channels_max` channels share a message over the network: their parts have at least
/// kMessagePartBytesMin each.
int compute_message_channels(uint64_t size_bytes, int channels_max);
/// A further part costs a host rank 7 us over TCP; a network of 25 GB/s carries this in 5 us.
inline constexpr uint64_t kMessagePartBytesMin = uint64_t{128} * 1024;

/// Whether chunk index i means "block of rank i" in this collective's buffers.
bool is_blocked(Collective collective);

/// Elements of a call's larger buffer.
uint64_t buffer_count(Collective collective, uint64_t count, int nranks);

}  // namespace plexus
