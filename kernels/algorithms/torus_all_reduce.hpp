// SPDX-License-Identifier: Apache-2.0
// 2D torus all-reduce (Mikami et al., "Massively distributed SGD: ImageNet/ResNet-50 training in a
// flash", 2018): the ranks form rows x columns; reduce-scatter round the rings of the rows,
// all-reduce round the rings of the columns, all-gather round the rows. It moves the bytes of one
// ring in far fewer steps. Rows and columns are as equal as the factors of nranks allow; a prime
// number of ranks is one ring. Chunks per loop: nranks. Chunks sent per rank: 2(nranks-1). Steps:
// 2(rows-1) in the columns; in the rows 2(columns-1) for every kTorusBatch of a row's chunks, or
// once where they travel in one message.
#pragma once

#include "kernels/algorithms/bruck.hpp"
#include "kernels/algorithms/prims.hpp"
#include "kernels/algorithms/ring_view.hpp"

namespace plexus {

/// Number of chunks that a rank has in flight round a ring: one less than kBatch, because every
/// rank of the ring needs a free slot to forward one.
inline constexpr int kTorusBatch = kBatch - 1;

/// Places are numbered row by row. Block (column, row) is completed by the rank at that place.
struct Torus {
  int rows;
  int columns;

  PLEXUS_HOST_DEVICE static constexpr Torus of(int nranks) {
    int columns = 1;
    for (int divisor = 2; divisor * divisor <= nranks; ++divisor) {
      columns = nranks % divisor == 0 ? divisor : columns;
    }
    return {nranks / columns, columns};
  }
  [[nodiscard]] PLEXUS_HOST_DEVICE constexpr int block(int column, int row) const {
    return column * rows + row;
  }
};

/// One rank of the torus, with its neighbours in both rings.
struct TorusPlace {
  Torus torus;
  int row;
  int column;
  int row_next;
  int row_prev;
  int column_next;
  int column_prev;

  PLEXUS_HOST_DEVICE static TorusPlace of(const RingView& ring) {
    const Torus torus = Torus::of(ring.nranks);
    const int row = ring.position / torus.columns;
    const int column = ring.position % torus.columns;
    const auto at = [&](int r, int c) {
      return ring.at((r + torus.rows) % torus.rows * torus.columns +
                     (c + torus.columns) % torus.columns);
    };
    return {torus,
            row,
            column,
            at(row, column + 1),
            at(row, column - 1),
            at(row + 1, column),
            at(row - 1, column)};
  }
  [[nodiscard]] PLEXUS_HOST_DEVICE int column_behind(int steps) const {
    return (column - steps + torus.columns) % torus.columns;
  }
  [[nodiscard]] PLEXUS_HOST_DEVICE int row_behind(int steps) const {
    return (row - steps + torus.rows) % torus.rows;
  }
};

/// Reduces rows `first` to `end` - 1 of all columns round the row's ring; leaves the own column's
/// sums.
template <class Prims>
PLEXUS_HOST_DEVICE void torus_reduce_rows(Prims& prims, const TorusPlace& at, int first, int end) {
  const int count = end - first;
  message_of(prims, count, [&](int i) {
    prims.send(Buffer::kInput, at.torus.block(at.column_behind(1), first + i), at.row_next);
  });
  for (int step = 2; step < at.torus.columns; ++step) {
    message_of(prims, count, [&](int i) {
      prims.recv_reduce_send(at.row_prev, Buffer::kInput,
                             at.torus.block(at.column_behind(step), first + i), at.row_next);
    });
  }
  message_of(prims, count, [&](int i) {
    prims.recv_reduce_copy(at.row_prev, Buffer::kInput, Buffer::kOutput,
                           at.torus.block(at.column, first + i), Complete::kNo);
  });
}

template <class Prims>
PLEXUS_HOST_DEVICE void torus_reduce_column(Prims& prims, const TorusPlace& at, Buffer held) {
  const int rows = at.torus.rows;
  const auto block = [&](int row) { return at.torus.block(at.column, row); };
  prims.send(held, block(at.row_behind(1)), at.column_next);
  for (int step = 2; step < rows; ++step) {
    prims.recv_reduce_send(at.column_prev, held, block(at.row_behind(step)), at.column_next);
  }
  prims.recv_reduce_copy_send(at.column_prev, held, Buffer::kOutput, block(at.row), at.column_next,
                              Complete::kYes);
  for (int step = 1; step < rows - 1; ++step) {
    prims.recv_copy_send(at.column_prev, Buffer::kOutput, block(at.row_behind(step)),
                         at.column_next);
  }
  prims.recv(at.column_prev, Buffer::kOutput, block(at.row_behind(rows - 1)));
}

template <class Prims>
PLEXUS_HOST_DEVICE void torus_gather_rows(Prims& prims, const TorusPlace& at, int first, int end) {
  const int columns = at.torus.columns;
  const int count = end - first;
  message_of(prims, count, [&](int i) {
    prims.send(Buffer::kOutput, at.torus.block(at.column, first + i), at.row_next);
  });
  for (int step = 1; step < columns - 1; ++step) {
    message_of(prims, count, [&](int i) {
      prims.recv_copy_send(at.row_prev, Buffer::kOutput,
                           at.torus.block(at.column_behind(step), first + i), at.row_next);
    });
  }
  message_of(prims, count, [&](int i) {
    prims.recv(at.row_prev, Buffer::kOutput,
               at.torus.block(at.column_behind(columns - 1), first + i));
  });
}

template <class Prims>
PLEXUS_HOST_DEVICE void torus_all_reduce(Prims& prims, const RingView& ring) {
  const TorusPlace at = TorusPlace::of(ring);
  const bool is_ring = at.torus.columns == 1;
  const int rows = at.torus.rows;
  const int batch = prims.joins() ? rows : kTorusBatch;
  const auto for_batches = [&](const auto& use) {
    for (int row = 0; row < rows && !is_ring; row += batch) {
      use(row, row + batch < rows ? row + batch : rows);
    }
  };
  for_batches([&](int first, int end) { torus_reduce_rows(prims, at, first, end); });
  torus_reduce_column(prims, at, is_ring ? Buffer::kInput : Buffer::kOutput);
  for_batches([&](int first, int end) { torus_gather_rows(prims, at, first, end); });
}

}  // namespace plexus
