// SPDX-License-Identifier: Apache-2.0
// Which buffers a rank reads and writes in a call, and how many bytes of them.
#pragma once

#include <cstddef>

#include "core/schedule/task.hpp"

namespace plexus {

/// This rank reads `send` in this call.
constexpr bool uses_send(const CallShape& shape, int rank) {
  switch (shape.collective) {
    case Collective::kBroadcast:
    case Collective::kScatter:
      return rank == shape.root;
    case Collective::kRecv:
      return false;
    default:
      return true;
  }
}

/// This rank writes `recv` in this call.
constexpr bool uses_recv(const CallShape& shape, int rank) {
  switch (shape.collective) {
    case Collective::kReduce:
    case Collective::kGather:
      return rank == shape.root;
    case Collective::kSend:
      return false;
    default:
      return true;
  }
}

/// Size of a buffer that is used in a checked call.
inline size_t send_size_bytes(const CallShape& shape, int nranks) {
  const bool is_for_each = shape.collective == Collective::kReduceScatter ||
                           shape.collective == Collective::kAllToAll ||
                           shape.collective == Collective::kScatter;
  return shape.count * element_size(shape.datatype()) *
         (is_for_each ? static_cast<size_t>(nranks) : 1);
}
inline size_t recv_size_bytes(const CallShape& shape, int nranks) {
  const bool is_of_each = shape.collective == Collective::kAllGather ||
                          shape.collective == Collective::kAllToAll ||
                          shape.collective == Collective::kGather;
  return shape.count * element_size(shape.datatype()) *
         (is_of_each ? static_cast<size_t>(nranks) : 1);
}

}  // namespace plexus
