// SPDX-License-Identifier: Apache-2.0
// Latency and bandwidth of a net plugin by itself: two processes of this host with one connection
// in each direction; the caller's thread drives both ends, as the engine does.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/base/result.hpp"
#include "tools/conformance/runner.hpp"

namespace plexus::conformance {

struct BenchRow {
  uint64_t size_bytes;
  double latency_us_min;  // half of a round trip
  double latency_us_median;
  double bandwidth_gb_per_s;  // with consecutive messages, 8 in flight
};

[[nodiscard]] Result<std::vector<BenchRow>> run_bench(const Subject& subject);

/// Pure.
[[nodiscard]] std::string format_bench(const std::vector<BenchRow>& rows);
[[nodiscard]] std::string format_bench_json(const std::string& library,
                                            const Identity& identity,
                                            const std::vector<BenchRow>& rows);

}  // namespace plexus::conformance
