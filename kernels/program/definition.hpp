// SPDX-License-Identifier: Apache-2.0
// `CollectiveDefinition`: what a collective means in chunks. Which rank has an input and an output,
// which chunk indices are the same memory, and what every output chunk must hold in the end. The
// verifier's specification; kernels/layout/geometry.hpp says the same in elements.
#pragma once

#include "kernels/algorithms/prims.hpp"
#include "kernels/layout/collective.hpp"

namespace plexus {

/// One rank's piece of a collective's input.
struct Contribution {
  int rank;
  int block;
};

/// A rank's memory is numbered in cells of one chunk: input, output, scratch; an in-place call's
/// input and output share cells.
struct CollectiveDefinition {
  Collective collective;
  int nranks;
  int root;
  bool in_place;
  int chunks;
  int scratch_chunks;
  int networks = 0;  // peers from nranks on: groups whose chunks the network combines

  /// Chunk index = block of the buffer, all blocks equally long? Otherwise chunks lie one after the
  /// other and the last ones of a message may be shorter, or empty and skipped.
  [[nodiscard]] bool is_blocked() const;
  [[nodiscard]] bool has_input(int rank) const;
  [[nodiscard]] bool has_output(int rank) const;
  [[nodiscard]] bool has(int rank, Buffer buffer) const;
  /// Is the buffer a single block, so that every chunk index means the same memory?
  [[nodiscard]] bool is_one_block(Buffer buffer) const;

  [[nodiscard]] int cells() const { return 2 * chunks + scratch_chunks; }
  [[nodiscard]] int cell(int rank, Buffer buffer, int chunk) const;
  /// What output chunk `chunk` of `rank` holds in the end; of a reduction: the block of which it
  /// holds all ranks' contributions (`rank` is then of no meaning).
  [[nodiscard]] Contribution expected(int rank, int chunk) const;
};

}  // namespace plexus
