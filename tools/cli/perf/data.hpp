// SPDX-License-Identifier: Apache-2.0
// Test data of `plexus perf`: each rank's input and the expected result. Each element is a pure
// function of (seed, index, rank), so that nothing is stored or exchanged for the check.
//
// The contributions are chosen so that the result is exact in the type for any order of the
// reduction, and computable without visiting all ranks. a(i, p) is a hash of element and position:
//   - sum: rank p contributes a(i, p+1) - a(i, p), which telescopes to a(i, n) - a(i, 0). Floating
//     types use integers small enough that every partial sum is exact, times a power of two. If a
//     type has too few bits for n ranks, only a window of the ranks (different for each element)
//     contributes, and the others contribute 0.
//   - prod: for integers with odd a, rank p contributes a(i, p+1) * a(i, p)^-1 modulo 2^w, one rank
//     also an arbitrary factor. For floating types: signs and powers of two that telescope; one
//     rank adds a mantissa.
//   - max, min: one rank has the extreme value, the others random values that lose; no NaN, no -0.
//   - avg: integers as sum; floating types have two contributors of one sign and are checked with
//     `tolerance_units`.
//   - mulsum: as sum, after the scalar (`premul_scalar`: 1 on even ranks, 2 on odd ones).
// Data that is only moved consists of random bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "tools/cli/perf/vocabulary.hpp"

namespace plexus::perf {

/// One reduction over all ranks.
struct Reduction {
  Type type;
  Op op;
  int nranks;
  uint64_t seed;
};

/// Elements `first_index`... of the data that `source` moves. `out` holds whole elements.
void fill_stream(
    Type type, uint64_t seed, int source, size_t first_index, std::span<std::byte> out);
/// The contribution of `rank` to the reduction.
void fill_contribution(const Reduction& reduction,
                       int rank,
                       size_t first_index,
                       std::span<std::byte> out);
/// The result of the reduction.
void fill_result(const Reduction& reduction, size_t first_index, std::span<std::byte> out);

/// Tolerance between a value and the expected one, in steps between neighbouring numbers of the
/// type.
[[nodiscard]] int tolerance_units(const Reduction& reduction) noexcept;

/// Elements of `got` that are more than `units` away from `want` (both: whole elements of `type`).
[[nodiscard]] uint64_t count_wrong(Type type,
                                   int units,
                                   std::span<const std::byte> got,
                                   std::span<const std::byte> want) noexcept;

/// The PreMulSum scalar of `rank` in `type`, in the first bytes of the result.
struct Scalar {
  alignas(8) std::byte bytes[8];
};
[[nodiscard]] Scalar premul_scalar(Type type, int rank) noexcept;

}  // namespace plexus::perf
