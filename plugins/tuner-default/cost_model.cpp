// SPDX-License-Identifier: Apache-2.0
#include "plugins/tuner-default/cost_model.hpp"

#include <algorithm>
#include <cmath>
#include <string_view>

namespace plexus::tuner_default {
namespace {

// What packing lines adds (docs/performance.md).
constexpr double kUsPerByteLL = 1.2e-4;
constexpr double kUsPerByteLL128 = 4e-5;
constexpr double kMessageUsOfLines = 0.01;

/// The slowest class that joins any two ranks: a flat algorithm waits for it in every round. What
/// the host knows of the link replaces the calibration.
LinkCost slowest_link(const Calibration& calibration, const plexus_tuner_comm_t& comm) {
  LinkCost cost = calibration[PLEXUS_LINK_PROCESS];
  for (uint32_t i = 0; i < PLEXUS_LINK_CLASSES; ++i) {
    const plexus_tuner_link_t& link = comm.links[i];
    if (link.count == 0) {
      continue;
    }
    cost = calibration[i];
    if (link.latency_ns > 0) {
      cost.latency_us = static_cast<double>(link.latency_ns) / 1e3;
    }
    if (link.bandwidth_mbit_per_s > 0) {
      cost.us_per_byte = 8.0 / static_cast<double>(link.bandwidth_mbit_per_s);
    }
  }
  return cost;
}

}  // namespace

double predict_us(const Calibration& calibration,
                  const plexus_tuner_comm_t& comm,
                  const plexus_tuner_call_t& call,
                  const plexus_tuner_candidate_t& candidate) {
  if (candidate.chunks_per_loop == 0 || candidate.chunk_bytes == 0 ||
      comm.cores_per_node_min == 0) {
    return -1;
  }
  LinkCost cost = slowest_link(calibration, comm);
  // Lines are packed and unpacked, on top of the copies that Simple makes.
  const std::string_view protocol = candidate.protocol == nullptr ? "" : candidate.protocol;
  if (protocol == "LL" || protocol == "LL128") {
    cost.us_per_byte += protocol == "LL" ? kUsPerByteLL : kUsPerByteLL128;
    cost.message_us += kMessageUsOfLines;
  }
  // More ranks than cores: each waits for its turn to run.
  const double ranks_per_core = std::max(1.0, static_cast<double>(comm.ranks_per_node_max) /
                                                  static_cast<double>(comm.cores_per_node_min));
  cost.latency_us *= ranks_per_core > 1 ? 4 * ranks_per_core : 1;
  cost.message_us *= ranks_per_core;
  cost.us_per_byte *= ranks_per_core;

  // One thread drives the channels of a host rank, so they take turns and the bytes are the same.
  const auto chunks = static_cast<double>(candidate.chunks_per_loop);
  const auto size_bytes = static_cast<double>(call.size_bytes);
  const double chunk_bytes = std::min(static_cast<double>(candidate.chunk_bytes),
                                      std::max(1.0, std::ceil(size_bytes / chunks)));
  const double loops = std::max(1.0, std::ceil(size_bytes / (chunks * chunk_bytes)));
  const double messages = loops * static_cast<double>(candidate.chunks_moved);
  const auto rounds = static_cast<double>(candidate.rounds);
  const double bytes_us = chunk_bytes * cost.us_per_byte;
  return rounds * (cost.latency_us + bytes_us) +
         std::max(0.0, messages - rounds) * (cost.message_us + bytes_us);
}

}  // namespace plexus::tuner_default
