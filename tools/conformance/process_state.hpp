// SPDX-License-Identifier: Apache-2.0
// What a process holds, read from the kernel: descriptors, threads, memory, signal handlers. Two
// looks and their difference tell what a plugin left behind.
#pragma once

#include <array>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/base/result.hpp"

namespace plexus::conformance {

/// Descriptor -> what it is ("socket:[1234]").
using Descriptors = std::map<int, std::string>;
[[nodiscard]] Descriptors list_descriptors();
/// Those of `now` that are not in `before`, as text; "" = none.
[[nodiscard]] std::string describe_new(const Descriptors& before, const Descriptors& now);

[[nodiscard]] uint32_t count_threads();
/// Until there are at most `count` threads, or the time is over; the number then. A thread that
/// was joined takes a moment to leave the kernel's list.
[[nodiscard]] uint32_t settle_threads(uint32_t count, std::chrono::milliseconds limit);
/// Bytes that malloc has given out.
[[nodiscard]] uint64_t count_heap_bytes();

inline constexpr int kSignals = 32;
using Handlers = std::array<std::uintptr_t, kSignals>;
[[nodiscard]] Handlers list_handlers();

/// The environment, the folder, the umask and the rounding mode: what a library must leave alone.
[[nodiscard]] std::vector<std::string> list_surroundings();

}  // namespace plexus::conformance
