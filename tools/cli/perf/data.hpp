// SPDX-License-Identifier: Apache-2.0
// Test data of `plexus perf`: what every rank puts in and what must come out, each element a pure
// function of (seed, index, rank), so nothing is stored or exchanged for the check.
//
// The contributions are made so that the result is exact in the type, whatever the order of the
// reduction, and known without visiting the ranks. With a(i, p) a hash of element and position:
//   sum      rank p gives a(i, p+1) - a(i, p); the sum telescopes to a(i, n) - a(i, 0). Floating
//   types
//            use integers so small that no partial sum needs more bits than the type has, times a
//            power of two; where a type has too few bits for n ranks, a window of the ranks
//            (another one for each element) contributes and the others give 0.
//   prod     integers: odd a, rank p gives a(i, p+1) * a(i, p)^-1 modulo 2^w, one rank also an
//   arbitrary
//            factor. Floating: signs and powers of two that telescope, one rank adds a mantissa.
//   max,min  one rank has the extreme value, the others random values on the losing side; no NaN,
//   no -0. avg      integers: as sum. Floating: two contributors of one sign; checked to
//   `tolerance_units`. mulsum   as sum, after the scalar (`premul_scalar`: 1 on even ranks, 2 on
//   odd ones).
// Data that is only moved is random bits.
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
/// What `rank` puts into the reduction.
void fill_contribution(const Reduction& reduction,
                       int rank,
                       size_t first_index,
                       std::span<std::byte> out);
/// What comes out.
void fill_result(const Reduction& reduction, size_t first_index, std::span<std::byte> out);

/// How far a value may be from the expected one, in steps between neighbouring numbers of the type.
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
