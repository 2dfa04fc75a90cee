// SPDX-License-Identifier: Apache-2.0
// Jobs for tests of the simulator.
#pragma once

#include <gtest/gtest.h>

#include "core/tuning/partition.hpp"
#include "tools/sim/simulate.hpp"

namespace plexus {

inline std::vector<const Algorithm*> simulated_algorithms() {
  std::vector<const Algorithm*> all;
  for (const Algorithm& row : algorithms()) {
    if (row.network_cost == nullptr && !is_point_to_point(row.collective)) {
      all.push_back(&row);
    }
  }
  return all;
}

/// One message costs `latency_us` and 1 us per KiB; a rank a node. `bytes`: of the larger buffer.
inline SimJob make_job(const char* algorithm, int nranks, uint64_t bytes) {
  SimJob job;
  job.algorithm = find_algorithm(algorithm);
  job.nranks = nranks;
  const uint64_t blocks = is_blocked(job.algorithm->collective) ? static_cast<uint64_t>(nranks) : 1;
  job.count = bytes / job.element_bytes / blocks;
  const SimLink link{.latency_us = 5, .us_per_byte = 1.0 / 1024, .message_us = 0};
  job.costs = {
      .near = link, .far = link, .wide = link, .reduce_us_per_byte = 0, .copy_us_per_byte = 0};
  return job;
}

inline SimResult run(const Result<SimNetwork>& network,
                     const Fabric* fabric = nullptr,
                     const SimWatch& watch = {}) {
  EXPECT_TRUE(network.has_value());
  auto result = simulate(network.value(), fabric, watch);
  EXPECT_TRUE(result.has_value()) << (result ? "" : result.error().message());
  return result.has_value() ? std::move(result).value() : SimResult{};
}

inline double time_of(const SimJob& job) { return run(make_network(job)).time_us; }

}  // namespace plexus
