// SPDX-License-Identifier: Apache-2.0
// Sizes, and divisions whose names state their rounding.
#pragma once

#include <cstdint>
#include <type_traits>

namespace plexus {

constexpr uint64_t operator""_KiB(unsigned long long value) { return value * 1024; }
constexpr uint64_t operator""_MiB(unsigned long long value) { return value * 1024 * 1024; }

template <class T>
constexpr T div_ceil(T value, std::type_identity_t<T> divisor) {
  return (value + divisor - 1) / divisor;
}
template <class T>
constexpr T align_up(T value, std::type_identity_t<T> alignment) {
  return div_ceil(value, alignment) * alignment;
}

}  // namespace plexus
