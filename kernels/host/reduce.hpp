// SPDX-License-Identifier: Apache-2.0
// Element-wise work of host ranks, vectorised by Google Highway for the CPU it runs on. Arithmetic:
// integers wrap modulo 2^n; 16- and 8-bit floats compute in float and round once per step to the
// element type; min and max drop a NaN (C's fmin/fmax). Results do not depend on the CPU.
// Buffers need no alignment beyond the element's; `target` may be exactly one of the sources.
// Threads: any. Nothing allocates.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/layout/types.hpp"

namespace plexus {

/// target[i] = a[i] op b[i].
using ReducePair = void (*)(void* target, const void* a, const void* b, size_t count) noexcept;

/// The function for a type and operation, for lookup in advance; nullptr for ReduceKind::kNone.
ReducePair find_reduce_pair(DataType type, ReduceKind kind) noexcept;

/// target[i] = source[i] * scalar, rounded to the type.
void scale(
    void* target, const void* source, size_t count, DataType type, uint64_t scalar_bits) noexcept;
/// target[i] = source[i] / divisor, rounded towards zero. Integer types only; others are copied.
void divide(
    void* target, const void* source, size_t count, DataType type, uint32_t divisor) noexcept;

/// Of the elements of a floating type those that are NaN or infinite.
struct NotFinite {
  uint64_t count = 0;
  uint64_t first = 0;   // index
  bool is_nan = false;  // the first one
};
NotFinite find_not_finite(const void* data, size_t count, DataType type) noexcept;

void copy(void* target, const void* source, size_t size_bytes) noexcept;
/// Copies with non-temporal stores, for targets that are not read soon.
void copy_streaming(void* target, const void* source, size_t size_bytes) noexcept;

}  // namespace plexus
