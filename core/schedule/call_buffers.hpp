// SPDX-License-Identifier: Apache-2.0
// Which buffers a rank reads and writes in a call, and how many bytes of them.
#pragma once

#include <cstddef>

#include "core/schedule/task.hpp"

namespace plexus {

/// This rank reads `send` in this call.
inline bool uses_send(const CallShape& shape, int rank) {
  switch (shape.collective) {
    case Collective::kBroadcast:
    case Collective::kScatter:
      return rank == shape.root;
    case Collective::kAllGather:
      return shape.blocks.get() == nullptr || shape.blocks->own > 0;
    case Collective::kRecv:
      return false;
    default:
      return true;
  }
}

/// This rank writes `recv` in this call.
inline bool uses_recv(const CallShape& shape, int rank) {
  switch (shape.collective) {
    case Collective::kReduce:
    case Collective::kGather:
      return rank == shape.root;
    case Collective::kReduceScatter:
      return shape.blocks.get() == nullptr || shape.blocks->own > 0;
    case Collective::kSend:
      return false;
    default:
      return true;
  }
}

/// Size of a buffer that is used in a checked call. `has_all`: it has the blocks of all ranks.
inline size_t buffer_size_bytes(const CallShape& shape, int nranks, bool has_all) {
  const size_t element_bytes = element_size(shape.datatype());
  if (shape.blocks.get() != nullptr) {
    return (has_all ? shape.blocks->end : shape.blocks->own) * element_bytes;
  }
  return shape.count * element_bytes * (has_all ? static_cast<size_t>(nranks) : 1);
}
inline size_t send_size_bytes(const CallShape& shape, int nranks) {
  return buffer_size_bytes(shape, nranks,
                           shape.collective == Collective::kReduceScatter ||
                               shape.collective == Collective::kAllToAll ||
                               shape.collective == Collective::kScatter);
}
inline size_t recv_size_bytes(const CallShape& shape, int nranks) {
  return buffer_size_bytes(shape, nranks,
                           shape.collective == Collective::kAllGather ||
                               shape.collective == Collective::kAllToAll ||
                               shape.collective == Collective::kGather);
}

}  // namespace plexus
