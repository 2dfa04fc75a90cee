// SPDX-License-Identifier: Apache-2.0
// Inputs for comparing devices bit by bit.
#pragma once

#include <algorithm>
#include <cstring>
#include <random>
#include <vector>

#include "kernels/layout/types.hpp"

namespace plexus::test {

/// Random bits without NaN and infinity: one bit of the exponent is never set. (A host compiler may
/// choose either of two NaNs.)
inline std::vector<std::byte> make_input(DataType type, size_t size_bytes, uint32_t seed) {
  uint64_t mask = ~uint64_t{0};
  if (is_floating(type)) {
    constexpr uint64_t kExponentBits[] = {0x04000400'04000400, 0x00800000'00800000,
                                          0x0010000000000000,  0x00800080'00800080,
                                          0x08080808'08080808, 0x0404040404040404};
    mask = ~kExponentBits[static_cast<int>(type) - static_cast<int>(DataType::kFloat16)];
  }
  std::mt19937_64 random(seed);
  std::vector<std::byte> bytes(size_bytes);
  for (size_t i = 0; i < size_bytes; i += sizeof(uint64_t)) {
    const uint64_t bits = random() & mask;
    std::memcpy(bytes.data() + i, &bits, std::min(sizeof(bits), size_bytes - i));
  }
  return bytes;
}

}  // namespace plexus::test
