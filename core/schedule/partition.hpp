// SPDX-License-Identifier: Apache-2.0
// Divides a call into channel parts, loops and chunks. Pure, so that all ranks compute the same
// spans.
#pragma once

#include <cstdint>

#include "kernels/layout/collective.hpp"
#include "kernels/layout/geometry.hpp"

namespace plexus {

struct PartitionInput {
  Collective collective = Collective::kAllReduce;
  uint64_t count = 0;  // as in Task
  uint32_t element_bytes = 1;
  int nranks = 1;
  int chunks = 1;               // chunk indices per loop of the program
  int scratch_chunks = 0;       // the program's
  bool divides_buffer = false;  // the program's; then `chunks` divides the larger buffer
  int channel = 0;
  int channels = 1;
  uint32_t slot_bytes = 0;
};

/// The part of `channel`. Its chunks fit in a slot; a part may be empty (0 loops).
Geometry compute_partition(const PartitionInput& input);

/// Of `channels_max`, the channels that share a message over the network: their parts have at least
/// kMessagePartBytesMin each.
int compute_message_channels(uint64_t size_bytes, int channels_max);
/// A further part costs a host rank 7 us over TCP; a network of 25 GB/s carries this in 5 us.
inline constexpr uint64_t kMessagePartBytesMin = uint64_t{128} * 1024;

/// Whether chunk index i means "block of rank i" in this collective's buffers.
bool is_blocked(Collective collective);

/// Elements of a call's larger buffer.
uint64_t buffer_count(Collective collective, uint64_t count, int nranks);

}  // namespace plexus
