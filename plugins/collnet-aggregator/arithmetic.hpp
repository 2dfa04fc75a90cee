// SPDX-License-Identifier: Apache-2.0
// What the aggregator can combine: integers of all widths, and floats from 16 bits on. 16-bit
// floats are combined two by two in 32 bits and rounded to nearest even, as Plexus's ranks do.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace plexus::aggregator {

/// Bytes of an element; 0: not a type that is combined here. `type`: PLEXUS_TYPE_*.
[[nodiscard]] uint32_t element_bytes(int32_t type) noexcept;
/// `op`: PLEXUS_REDUCE_*.
[[nodiscard]] bool can_reduce(int32_t type, int32_t op) noexcept;

/// `sum` = `sum` op `part`, element by element; both equally long. Only what can_reduce.
void combine(int32_t type,
             int32_t op,
             std::span<std::byte> sum,
             std::span<const std::byte> part) noexcept;

}  // namespace plexus::aggregator
