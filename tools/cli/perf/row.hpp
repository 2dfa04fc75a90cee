// SPDX-License-Identifier: Apache-2.0
// One line of results as plain data, so that the measuring rank can send it through a pipe to the
// process that prints.
#pragma once

#include <array>
#include <cstdint>
#include <type_traits>

#include "tools/cli/perf/statistics.hpp"
#include "tools/cli/perf/vocabulary.hpp"

namespace plexus::perf {

/// What is run with every size: one combination of -d, -o and -r.
struct Variant {
  Type type;
  Op op;     // meaningless for a collective without reduction
  int root;  // -1: the collective has none
};

struct Row {  // NOLINT(cppcoreguidelines-pro-type-member-init): trivial, so that it can be sent as
              // bytes
  static constexpr int64_t kUnchecked = -1;
  static constexpr size_t kNameBytes = 24;
  using Name = std::array<char, kNameBytes>;  // ends with a 0

  Variant variant;
  uint64_t size_bytes;
  uint64_t count;
  bool in_place;
  int batch;       // operations per timed iteration
  int iterations;  // timed
  TimeUs time_us;
  double cpu_us;  // median of the time until the calls of an operation have returned
  int64_t wrong;
  Name algorithm;  // empty: unknown, or nothing was done
  Name protocol;
  int channels;
  double estimated_us;  // of one operation, by ncclGroupSimulateEnd; < 0: unknown
};
static_assert(std::is_trivially_copyable_v<Row>);

/// Copies as much of `text` as fits.
[[nodiscard]] Row::Name make_name(const char* text) noexcept;

}  // namespace plexus::perf
