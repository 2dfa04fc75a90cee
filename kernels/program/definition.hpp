// SPDX-License-Identifier: Apache-2.0
// `CollectiveDefinition`: the meaning of a collective in chunks: which ranks have an input and an
// output, which chunk indices share memory, and what every output chunk must finally hold. It is
// the verifier's specification; kernels/layout/geometry.hpp says the same in elements.
#pragma once

#include "kernels/algorithms/prims.hpp"
#include "kernels/layout/collective.hpp"

namespace plexus {

/// One rank's block of a collective's input.
struct Contribution {
  int rank;
  int block;
};

/// A rank's memory is numbered in cells of one chunk: input, output, scratch. In place, input and
/// output share cells.
struct CollectiveDefinition {
  Collective collective;
  int nranks;
  int root;
  bool in_place;
  int chunks;
  int scratch_chunks;
  int networks = 0;             // peers from nranks on: groups whose chunks the network combines
  bool divides_buffer = false;  // as in Program
  bool shares_scratch = false;  // likewise

  /// Whether one of the buffers has a block for each rank.
  [[nodiscard]] bool has_blocks() const;
  /// Whether chunk index = block of the buffer and all blocks are equally long. Otherwise chunks
  /// are consecutive, and the last ones of a message may be shorter, or empty and skipped.
  [[nodiscard]] bool is_blocked() const;
  [[nodiscard]] bool has_input(int rank) const;
  [[nodiscard]] bool has_output(int rank) const;
  [[nodiscard]] bool has(int rank, Buffer buffer) const;
  /// Whether the buffer is a single block, so that every chunk index means the same memory.
  [[nodiscard]] bool is_one_block(Buffer buffer) const;
  /// Number of different chunks of the input or output.
  [[nodiscard]] int blocks(Buffer buffer) const;

  [[nodiscard]] int cells() const { return 2 * chunks + scratch_chunks; }
  [[nodiscard]] int cell(int rank, Buffer buffer, int chunk) const;
  /// What output chunk `chunk` of `rank` must finally hold. For a reduction: the block of which it
  /// holds all ranks' contributions (the rank in the returned Contribution has no meaning then).
  [[nodiscard]] Contribution expected(int rank, int chunk) const;

 private:
  /// Whether the buffer holds what one rank contributes or gets, unlike the other buffer.
  [[nodiscard]] bool is_one_share(Buffer buffer) const;
  /// Chunks of one rank's part of a blocked collective's larger buffer.
  [[nodiscard]] int share() const { return divides_buffer ? chunks / nranks : 1; }
};

}  // namespace plexus
