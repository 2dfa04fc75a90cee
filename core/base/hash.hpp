// SPDX-License-Identifier: Apache-2.0
// FNV-1a (Fowler, Noll, Vo), for values that processes compare: the same bits on every machine and
// in every version of the library. Not for secrets (libsodium is).
#pragma once

#include <cstdint>
#include <string_view>

namespace plexus {

class Fnv1a {
 public:
  constexpr void mix(std::string_view bytes) {
    for (const char byte : bytes) {
      mix_byte(static_cast<unsigned char>(byte));
    }
  }
  constexpr void mix(uint64_t value) {
    for (int shift = 0; shift < 64; shift += 8) {
      mix_byte(static_cast<unsigned char>(value >> shift));
    }
  }
  [[nodiscard]] constexpr uint64_t value() const { return state_; }

 private:
  static constexpr uint64_t kOffset = 0xcbf29ce484222325ULL;
  static constexpr uint64_t kPrime = 0x100000001b3ULL;
  constexpr void mix_byte(unsigned char byte) { state_ = (state_ ^ byte) * kPrime; }

  uint64_t state_ = kOffset;
};

}  // namespace plexus
