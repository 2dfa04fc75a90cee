// SPDX-License-Identifier: Apache-2.0
// All-to-all in two stages (as hierarchical all-to-alls of nodes and their ranks): the ranks form
// the rows and columns of a torus, in the order of the ring, so that a row is on one host where its
// length divides that of a host. First a rank sends each other rank of its row what is for that
// one's column; then each other rank of its column what it and its row have for that one. Blocks
// wait in scratch memory between. Chunks sent per rank: rows (columns - 1) + columns (rows - 1), to
// rows + columns - 2 peers. Steps: 2 where blocks for one peer are one message; else those of a
// stage go to one peer after the other, kBatch blocks at a time.
#pragma once

#include "kernels/algorithms/bruck.hpp"
#include "kernels/algorithms/torus_all_reduce.hpp"

namespace plexus {

/// Runs a stage: calls `send(d, i)` and `receive(d, i)` for `count` blocks i of each peer, which
/// are the ranks d = 1 to `peers` places on, and before. All messages leave before any is awaited,
/// unless a connection's slots are too few for that.
template <class Prims, class Send, class Receive>
PLEXUS_HOST_DEVICE void exchange_stage(
    Prims& prims, int peers, int count, const Send& send, const Receive& receive) {
  if (prims.joins()) {
    for (int d = 1; d <= peers; ++d) {
      message_of(prims, count, [&](int i) { send(d, i); });
    }
    for (int d = 1; d <= peers; ++d) {
      message_of(prims, count, [&](int i) { receive(d, i); });
    }
    return;
  }
  for (int d = 1; d <= peers; ++d) {
    in_batches(
        prims, count, [&](int i) { send(d, i); }, [&](int i) { receive(d, i); });
  }
}

/// Scratch chunk r is for, or from, rank r.
template <class Prims>
PLEXUS_HOST_DEVICE void torus_all_to_all(Prims& prims, const RingView& ring) {
  const TorusPlace at = TorusPlace::of(ring);
  const int rows = at.torus.rows;
  const int columns = at.torus.columns;
  const auto rank = [&](int row, int column) { return ring.at(row * columns + column); };
  // Where a stage receives before all has been sent, outputs may be inputs that are still needed.
  const bool waits = !prims.joins();
  prims.copy(Buffer::kInput, Buffer::kOutput, ring.self());
  exchange_stage(
      prims, columns - 1, rows,
      [&](int d, int row) {
        const int to = (at.column + d) % columns;
        prims.send(Buffer::kInput, rank(row, to), rank(at.row, to));
      },
      [&](int d, int row) {
        const int from = at.column_behind(d);
        prims.recv(rank(at.row, from), row == at.row && !waits ? Buffer::kOutput : Buffer::kScratch,
                   rank(row, from));
      });
  for (int column = 0; waits && column < columns; ++column) {
    if (column != at.column) {
      prims.copy(Buffer::kScratch, Buffer::kOutput, rank(at.row, column));
    }
  }
  for (int row = 0; waits && row < rows; ++row) {
    if (row != at.row) {
      prims.copy(Buffer::kInput, Buffer::kScratch, rank(row, at.column));
    }
  }
  exchange_stage(
      prims, rows - 1, columns,
      [&](int d, int column) {
        const int to = (at.row + d) % rows;
        const bool is_mine = column == at.column && !waits;
        prims.send(is_mine ? Buffer::kInput : Buffer::kScratch, rank(to, column),
                   rank(to, at.column), is_mine ? ByAddress::kYes : ByAddress::kNo);
      },
      [&](int d, int column) {
        const int from = at.row_behind(d);
        prims.recv(rank(from, at.column), Buffer::kOutput, rank(from, column));
      });
}

}  // namespace plexus
