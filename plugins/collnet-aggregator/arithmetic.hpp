// SPDX-License-Identifier: Apache-2.0
// The types that the aggregator can combine: integers of all widths, and floats of at least 16
// bits. 16-bit floats are combined pairwise in 32 bits and rounded to nearest even, as Plexus's
// ranks do.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace plexus::aggregator {

/// Size of an element in bytes; 0: the type is not supported. `type`: PLEXUS_TYPE_*.
[[nodiscard]] uint32_t element_bytes(int32_t type) noexcept;
/// `op`: PLEXUS_REDUCE_*.
[[nodiscard]] bool can_reduce(int32_t type, int32_t op) noexcept;

/// `sum` = `sum` op `part`, element by element, for equal lengths. Requires can_reduce().
void combine(int32_t type,
             int32_t op,
             std::span<std::byte> sum,
             std::span<const std::byte> part) noexcept;

}  // namespace plexus::aggregator
