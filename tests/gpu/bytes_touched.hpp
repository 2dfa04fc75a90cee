// SPDX-License-Identifier: Apache-2.0
// The memory traffic of a call, for comparison with a copy.
#pragma once

#include "tests/unit/kernels/cuda/world.hpp"

namespace plexus::test {

/// Bytes that all ranks read and write in memory, counted from their programs. A value that is
/// stored is sent by address and not copied to a slot.
inline double bytes_touched(const Call& call) {
  const Geometry geometry = geometry_of(call);
  double chunks = 0;
  for (const Program& program : call.programs) {
    for (const Lane& lane : program.lanes) {
      for (const Step& step : lane.steps) {
        const bool has_source = step.source != Buffer::kNone;
        const bool has_target = step.target != Buffer::kNone;
        const bool by_address = step.by_address && (has_target || step.receives == 0);
        const bool moves = has_target || !by_address;
        chunks += moves ? step.receives + (has_source ? 1 : 0) + (has_target ? 1 : 0) : 0;
        chunks += by_address ? 0 : step.sends;
      }
    }
  }
  const double parts = geometry.blocked ? 1 : geometry.chunks;
  return chunks / parts * static_cast<double>(call.count * element_size(call.type));
}

}  // namespace plexus::test
