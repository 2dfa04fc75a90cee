// SPDX-License-Identifier: Apache-2.0
// Programs of all ranks, recorded or handwritten, and the verifier's result for them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "kernels/program/record.hpp"
#include "kernels/program/verify.hpp"

namespace plexus {

using Programs = std::vector<Program>;
using Body = std::function<void(RecordingPrims&)>;

/// One program per body, of `chunks` chunks.
inline Programs make_programs(int chunks, const std::vector<Body>& bodies) {
  Programs programs;
  for (size_t rank = 0; rank < bodies.size(); ++rank) {
    RecordingPrims prims(static_cast<int>(rank), static_cast<int>(bodies.size()), chunks);
    bodies[rank](prims);
    programs.push_back(std::move(prims).take());
  }
  return programs;
}

inline Programs record(const char* algorithm, const std::vector<int>& ring, int root = 0) {
  Programs programs;
  for (size_t rank = 0; rank < ring.size(); ++rank) {
    programs.push_back(find_algorithm(algorithm)->record(
        {.rank = static_cast<int>(rank), .ring = ring, .root = root}));
  }
  return programs;
}

inline std::vector<int> in_order(int nranks) {
  std::vector<int> ring(static_cast<size_t>(nranks));
  std::iota(ring.begin(), ring.end(), 0);
  return ring;
}

inline std::string reason(const Programs& programs,
                          Collective collective,
                          bool in_place = false,
                          uint64_t slots = kSlots) {
  return verify_programs(programs, collective, 0, in_place, slots).reason;
}

}  // namespace plexus
