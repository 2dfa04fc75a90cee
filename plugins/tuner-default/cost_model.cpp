// SPDX-License-Identifier: Apache-2.0
#include "plugins/tuner-default/cost_model.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string_view>

namespace plexus::tuner_default {
namespace {

// Additional cost of packing lines (docs/performance.md).
constexpr double kUsPerByteLL = 1.2e-4;
constexpr double kUsPerByteLL128 = 4e-5;
constexpr double kMessageUsOfLines = 0.01;

// Registered memory that other processes read and write in place, compared with messages through
// slots: what a message costs, and a byte of it. What is combined comes from another core's cache.
constexpr double kMessageInPlace = 0.4;
constexpr double kByteInPlace = 0.15;
constexpr double kReduceUsPerByteInPlace = 3.6e-5;
constexpr double kBytesInPlaceMin = 4096;  // smaller messages are copied all the same

/// The host's knowledge of the link replaces the calibration.
LinkCost link_cost(const Calibration& calibration, const plexus_tuner_comm_t& comm, uint32_t kind) {
  const plexus_tuner_link_t& link = comm.links[kind];
  LinkCost cost = calibration.links[kind];
  if (link.latency_ns > 0) {
    const double latency_us = static_cast<double>(link.latency_ns) / 1e3;
    // In memory a message costs its cache lines, whether a rank waits for it or not.
    cost.message_us *= kind == PLEXUS_LINK_HOST ? latency_us / cost.latency_us : 1;
    cost.latency_us = latency_us;
  }
  if (link.bandwidth_mbit_per_s > 0) {
    cost.us_per_byte = 8.0 / static_cast<double>(link.bandwidth_mbit_per_s);
  }
  return cost;
}

/// The slowest class below `kinds` that joins any two ranks: a flat algorithm waits for it in every
/// round.
LinkCost slowest_link(const Calibration& calibration,
                      const plexus_tuner_comm_t& comm,
                      uint32_t kinds) {
  LinkCost cost = calibration.links[PLEXUS_LINK_PROCESS];
  for (uint32_t i = 0; i < kinds; ++i) {
    cost = comm.links[i].count > 0 ? link_cost(calibration, comm, i) : cost;
  }
  return cost;
}

/// Whether the host reports the traffic between datacenters; hosts before 1.3 do not.
bool tells_xdc(const plexus_tuner_comm_t& comm, const plexus_tuner_candidate_t& candidate) {
  constexpr size_t kWithXdc =
      offsetof(plexus_tuner_candidate_t, xdc_chunks) + sizeof(candidate.xdc_chunks);
  return comm.links[PLEXUS_LINK_XDC].count > 0 && candidate.struct_size >= kWithXdc;
}

/// The links of a candidate: what a round waits for, and what a chunk goes over, on average.
struct Links {
  LinkCost round;
  LinkCost busiest;  // of the chunks of the busiest rank
  LinkCost all;      // of those of all ranks
};

LinkCost mix(const LinkCost& near, const LinkCost& net, double share) {
  return {.latency_us = near.latency_us + share * (net.latency_us - near.latency_us),
          .message_us = near.message_us + share * (net.message_us - near.message_us),
          .us_per_byte = near.us_per_byte + share * (net.us_per_byte - near.us_per_byte)};
}

template <class Change>
void change(Links& links, const Change& how) {
  how(links.round);
  how(links.busiest);
  how(links.all);
}

/// Without what a protocol costs.
Links plain_links_of(const Calibration& calibration,
                     const plexus_tuner_comm_t& comm,
                     const plexus_tuner_candidate_t& candidate,
                     bool xdc) {
  const LinkCost slowest =
      slowest_link(calibration, comm, xdc ? PLEXUS_LINK_XDC : PLEXUS_LINK_CLASSES);
  if (!tells_net(comm, candidate)) {
    return {slowest, slowest, slowest};
  }
  const LinkCost near = slowest_link(calibration, comm, PLEXUS_LINK_NET);
  const auto mixed = [&](uint64_t part, uint64_t whole) {
    const double share = static_cast<double>(part) / std::max(1.0, static_cast<double>(whole));
    return mix(near, slowest, std::min(share, 1.0));
  };
  return {.round = mixed(candidate.net_rounds, candidate.rounds),
          .busiest = mixed(candidate.net_chunks, candidate.chunks_moved),
          .all = mixed(candidate.net_chunks_in_all, candidate.chunks_in_all)};
}

Links links_of(const Calibration& calibration,
               const plexus_tuner_comm_t& comm,
               const plexus_tuner_candidate_t& candidate,
               bool xdc) {
  Links links = plain_links_of(calibration, comm, candidate, xdc);
  // Lines are packed and unpacked in addition to Simple's copies.
  const std::string_view protocol = candidate.protocol == nullptr ? "" : candidate.protocol;
  if (protocol == "LL" || protocol == "LL128") {
    change(links, [&](LinkCost& link) {
      link.us_per_byte += protocol == "LL" ? kUsPerByteLL : kUsPerByteLL128;
      link.message_us += kMessageUsOfLines;
    });
  }
  return links;
}

/// A candidate's loop as doubles; values that a host before 1.2 lacks are derived from others.
struct LoopCost {
  double rounds;
  double moved;    // chunks, by the busiest rank
  double in_all;   // chunks, by all ranks
  double reduced;  // chunks, by the busiest rank
  double chunks_of_message;
};

LoopCost loop_cost(const plexus_tuner_comm_t& comm, const plexus_tuner_candidate_t& candidate) {
  LoopCost cost = {.rounds = static_cast<double>(candidate.rounds),
                   .moved = static_cast<double>(candidate.chunks_moved),
                   .in_all = static_cast<double>(candidate.chunks_moved) * comm.nranks,
                   .reduced = 0,
                   .chunks_of_message = 1};
  constexpr size_t kWithTotals =
      offsetof(plexus_tuner_candidate_t, chunks_reduced) + sizeof(candidate.chunks_reduced);
  if (candidate.struct_size >= kWithTotals) {
    cost.in_all = static_cast<double>(candidate.chunks_in_all);
    cost.reduced = static_cast<double>(candidate.chunks_reduced);
  }
  constexpr size_t kWithMessages =
      offsetof(plexus_tuner_candidate_t, messages_moved) + sizeof(candidate.messages_moved);
  if (candidate.struct_size >= kWithMessages && candidate.messages_moved > 0) {
    cost.chunks_of_message = cost.moved / static_cast<double>(candidate.messages_moved);
  }
  return cost;
}

/// Factor for the cost of a byte when many slots are in use: from the size of a core's cache on, it
/// grows with the number of chunks in flight.
double spread_factor(const HostCost& host, const LoopCost& loop, double bytes_moved) {
  constexpr double kCacheBytes = 1 << 20;
  const double at_once = std::max(1.0, loop.moved / std::max(loop.rounds, 1.0));
  return 1 + host.spread * (1 - 1 / at_once) * std::min(1.0, bytes_moved / kCacheBytes);
}

/// What the link between datacenters adds, which all ranks of one share.
struct WideCost {
  double us = 0;  // beside the work inside a datacenter
  double latency_us = 0;
};

WideCost wide_cost(const LinkCost& wide,
                   const plexus_tuner_candidate_t& candidate,
                   double loops,
                   double chunk_bytes) {
  // A connection has this many slots: a chunk of a loop that finds none free waits for one, in the
  // worst case for a round trip.
  constexpr double kSlots = 8;
  const double bytes_us =
      loops * static_cast<double>(candidate.xdc_chunks) * chunk_bytes * wide.us_per_byte;
  return {.us = std::max(bytes_us, (loops - 1) * 2 * wide.latency_us / kSlots),
          .latency_us = static_cast<double>(candidate.xdc_rounds) * wide.latency_us};
}

}  // namespace

bool tells_net(const plexus_tuner_comm_t& comm, const plexus_tuner_candidate_t& candidate) {
  constexpr size_t kWithNet =
      offsetof(plexus_tuner_candidate_t, net_chunks_in_all) + sizeof(candidate.net_chunks_in_all);
  return comm.links[PLEXUS_LINK_NET].count > 0 && candidate.struct_size >= kWithNet &&
         candidate.net_rounds > 0;
}

uint32_t slowest_class(const plexus_tuner_comm_t& comm) {
  uint32_t slowest = PLEXUS_LINK_PROCESS;
  for (uint32_t i = 0; i < PLEXUS_LINK_CLASSES; ++i) {
    slowest = comm.links[i].count > 0 ? i : slowest;
  }
  return slowest;
}

double predict_us(const Calibration& calibration,
                  const plexus_tuner_comm_t& comm,
                  const plexus_tuner_call_t& call,
                  const plexus_tuner_candidate_t& candidate) {
  if (candidate.chunks_per_loop == 0 || candidate.chunk_bytes == 0 || candidate.chunks_moved == 0 ||
      comm.cores_per_node_min == 0) {
    return -1;
  }
  const bool xdc = tells_xdc(comm, candidate);
  Links links = links_of(calibration, comm, candidate, xdc);
  HostCost host = calibration.host;
  const LoopCost loop = loop_cost(comm, candidate);

  // One thread drives the channels of a host rank in turn, so channels do not change the bytes'
  // cost.
  const auto chunks = static_cast<double>(candidate.chunks_per_loop);
  const auto size_bytes = static_cast<double>(call.size_bytes);
  const double chunk_bytes = std::min(static_cast<double>(candidate.chunk_bytes),
                                      std::max(1.0, std::ceil(size_bytes / chunks)));
  const double ranks_per_core =
      static_cast<double>(comm.ranks_per_node_max) / static_cast<double>(comm.cores_per_node_min);
  if (call.registered != 0 && slowest_class(comm) == PLEXUS_LINK_HOST && ranks_per_core <= 1 &&
      chunk_bytes >= kBytesInPlaceMin) {
    change(links, [](LinkCost& link) {
      link.latency_us *= kMessageInPlace;
      link.message_us *= kMessageInPlace;
      link.us_per_byte *= kByteInPlace;
    });
    host.reduce_us_per_byte = kReduceUsPerByteInPlace;
  }
  const double loops = std::max(1.0, std::ceil(size_bytes / (chunks * chunk_bytes)));
  const double bytes_moved = loops * loop.moved * chunk_bytes;
  const double spread = spread_factor(host, loop, bytes_moved);
  const auto chunk_us = [&](const LinkCost& link) {
    return chunk_bytes *
           (link.us_per_byte * spread + host.reduce_us_per_byte * loop.reduced / loop.moved);
  };
  const auto message_us = [&](const LinkCost& link) {  // of a chunk
    return link.message_us / loop.chunks_of_message + chunk_us(link);
  };
  // Half of a message's cost is the sender's, half the receiver's. The busiest rank moves `moved`
  // chunks in one direction, and in the other as many as the average rank.
  const double ranks = std::max(1U, comm.nranks);
  const double busiest_us = loops * (loop.moved + std::min(loop.moved, loop.in_all / ranks)) / 2 *
                            message_us(links.busiest);
  // Loops follow each other through the chain that the first one has to fill.
  const double fill_us = std::max(0.0, loop.rounds - loop.moved) * chunk_us(links.round);

  const double cores =
      std::min(ranks, static_cast<double>(comm.cores_per_node_min) * std::max(1U, comm.nnodes));
  const double all_us = loops * loop.in_all * message_us(links.all) / cores;
  const double turn_us = ranks_per_core > 1 ? host.turn_us * ranks_per_core : 0;
  const WideCost wide =
      xdc ? wide_cost(link_cost(calibration, comm, PLEXUS_LINK_XDC), candidate, loops, chunk_bytes)
          : WideCost();
  // The work inside a datacenter overlaps with the traffic between datacenters, but not completely:
  // fewer messages are better even if the link dominates.
  constexpr double kNotHidden = 0.1;
  const double near_us = std::max(busiest_us, all_us);
  return loop.rounds * (links.round.latency_us + turn_us) + wide.latency_us +
         std::max(near_us, wide.us) + kNotHidden * std::min(near_us, wide.us) + fill_us;
}

}  // namespace plexus::tuner_default
