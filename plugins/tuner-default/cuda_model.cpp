// SPDX-License-Identifier: Apache-2.0
#include "plugins/tuner-default/cuda_model.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <string_view>

namespace plexus::tuner_default {
namespace {

enum Protocol : size_t { kLL, kLL128, kSimple, kProtocolCount };
using ByProtocol = std::array<double, kProtocolCount>;

// In microseconds.
constexpr ByProtocol kCallUs = {6.6, 14.0, 8.4};
constexpr ByProtocol kHopUsNvlink = {0.6, 1.9, 3.4};
constexpr ByProtocol kHopUsPci = {1.0, 2.5, 5.7};
constexpr ByProtocol kHopUsNet = {2.7, 4.0, 14.0};
// Payload as a fraction of a link's bytes.
constexpr ByProtocol kEfficiency = {0.5, 0.92, 1.0};
// Bytes that make a channel worthwhile: what its threads move at once; for LL, for each chunk.
constexpr ByProtocol kChannelBytesMin = {512 * 8, 640 * 8, 512 * 64};

/// Costs of ranks of one process that share a device, measured on an H200 (docs/gpu-results.md): a
/// step waits, synchronizes and tells its peer, which takes about as long with any protocol, and
/// lines are moved as fast as one can be waited for.
constexpr ByProtocol kCallUsShared = {7, 11, 11};
constexpr ByProtocol kHopUsShared = {7.5, 8.5, 8};
constexpr ByProtocol kChannelGbPerSShared = {0.5, 0.6, 15};
constexpr double kMessageUsShared = 4.5;        // further messages of a rank, one after the other
constexpr double kAddressedBytesShared = 2048;  // from here on they go by address, all at once

/// In GB/s; rows by compute capability, the newest first.
struct Generation {
  uint32_t sm;
  std::array<double, 3> most_ll;  // all channels; on one host, two, more
  double channel_ll128;
  double channel_simple;
  double nvlinks;  // per device, if the host does not report them
};
constexpr std::array<Generation, 4> kGenerations = {{
    {100, {282, 90, 70}, 40, 70, 720},
    {90, {141, 45, 35}, 36.7, 38.7, 370},
    {80, {87.7, 22.5, 19}, 20, 24, 240},
    {0, {39, 39, 20.4}, 20, 26.5, 120},
}};
constexpr double kPciGbPerS = 12;
constexpr double kMemoryGbPerS = 1500;  // if the host does not report it
constexpr double kBytesPerUsOfGb = 1e3;
constexpr double kMbitOfGb = 8e3;

Protocol protocol_of(const plexus_tuner_candidate_t& candidate) {
  const std::string_view name = candidate.protocol == nullptr ? "" : candidate.protocol;
  return name == "LL" ? kLL : name == "LL128" ? kLL128 : kSimple;
}

const Generation& generation_of(uint32_t sm) {
  return *std::find_if(kGenerations.begin(), kGenerations.end(),
                       [&](const Generation& row) { return sm >= row.sm; });
}

/// Whether all ranks are in one process and on one device.
bool share_device(const plexus_tuner_comm_t& comm) {
  return comm.links[PLEXUS_LINK_PROCESS].count > 0 && comm.links[PLEXUS_LINK_HOST].count == 0 &&
         comm.links[PLEXUS_LINK_NET].count == 0 && comm.links[PLEXUS_LINK_XDC].count == 0 &&
         comm.cuda.ranks_per_device >= comm.nranks;
}

/// GB/s out of a rank to the others of its host, for any number of channels.
double near_gb_per_s(const plexus_tuner_comm_t& comm, const Generation& generation) {
  if (comm.cuda.ranks_per_device >= comm.ranks_per_node_max) {
    return kMemoryGbPerS * kBytesPerUsOfGb;  // all ranks on one device: limited by its memory
  }
  for (const uint32_t kind : {PLEXUS_LINK_HOST, PLEXUS_LINK_PROCESS}) {
    if (comm.links[kind].count > 0 && comm.links[kind].bandwidth_mbit_per_s > 0) {
      return static_cast<double>(comm.links[kind].bandwidth_mbit_per_s) / kMbitOfGb;
    }
  }
  return comm.cuda.nvlink != 0 ? generation.nvlinks : kPciGbPerS;
}

/// GB/s out of a rank, for any number of channels: over the slowest class of link; where it is said
/// how much goes between hosts, as long as both that and the rest take side by side.
double link_gb_per_s(const Calibration& calibration,
                     const plexus_tuner_comm_t& comm,
                     const plexus_tuner_candidate_t& candidate,
                     const Generation& generation) {
  const double near = near_gb_per_s(comm, generation);
  for (const uint32_t kind : {PLEXUS_LINK_XDC, PLEXUS_LINK_NET}) {
    const plexus_tuner_link_t& link = comm.links[kind];
    if (link.count == 0) {
      continue;
    }
    const double net = link.bandwidth_mbit_per_s > 0
                           ? static_cast<double>(link.bandwidth_mbit_per_s) / kMbitOfGb
                           : 1 / (kBytesPerUsOfGb * calibration.links[kind].us_per_byte);
    const double share =
        kind == PLEXUS_LINK_NET && tells_net(comm, candidate)
            ? std::min(1.0, static_cast<double>(candidate.net_chunks) / candidate.chunks_moved)
            : 1;
    return 1 / std::max(share / net, (1 - share) / near);
  }
  return near;
}

/// The mean of a chain: of rounds between hosts, where it is said how many there are, and others. A
/// round waits for the slowest hop that it may contain.
double hop_us(const Calibration& calibration,
              const plexus_tuner_comm_t& comm,
              const plexus_tuner_candidate_t& candidate,
              bool tells_xdc) {
  const Protocol protocol = protocol_of(candidate);
  if (share_device(comm)) {
    return kHopUsShared[protocol];
  }
  const double near_us = comm.cuda.nvlink != 0 ? kHopUsNvlink[protocol] : kHopUsPci[protocol];
  double us = near_us;
  const auto slower = [&](uint32_t kind) {
    const plexus_tuner_link_t& link = comm.links[kind];
    if (link.count > 0) {
      const double path_us = link.latency_ns > 0       ? static_cast<double>(link.latency_ns) / 1e3
                             : kind == PLEXUS_LINK_XDC ? calibration.links[kind].latency_us
                                                       : 0;
      us = std::max(us, kHopUsNet[protocol] + path_us);
    }
  };
  slower(PLEXUS_LINK_NET);
  if (!tells_xdc) {
    slower(PLEXUS_LINK_XDC);
  }
  if (tells_net(comm, candidate) && candidate.rounds > 0) {
    const double share = static_cast<double>(candidate.net_rounds) / candidate.rounds;
    us = near_us + std::min(share, 1.0) * (us - near_us);
  }
  return us;
}

double xdc_latency_us(const Calibration& calibration, const plexus_tuner_comm_t& comm) {
  const plexus_tuner_link_t& wide = comm.links[PLEXUS_LINK_XDC];
  return wide.latency_ns > 0 ? static_cast<double>(wide.latency_ns) / 1e3
                             : calibration.links[PLEXUS_LINK_XDC].latency_us;
}

/// No more channels than have work, and no more than saturate the link: `useful`.
double channels_for(const plexus_tuner_comm_t& comm,
                    const plexus_tuner_candidate_t& candidate,
                    double size_bytes,
                    double useful) {
  const Protocol protocol = protocol_of(candidate);
  double worth = kChannelBytesMin[protocol];
  if (protocol == kLL) {
    worth *= candidate.chunks_per_loop;
  } else if (protocol == kSimple && share_device(comm)) {
    worth *= comm.cuda.ranks_per_device / 2.0;  // more blocks start later
  }
  return std::clamp(std::floor(std::min(size_bytes / worth, useful)),
                    static_cast<double>(std::max(candidate.channels_min, 1U)),
                    static_cast<double>(std::max(candidate.channels_max, 1U)));
}

}  // namespace

bool is_cuda(const plexus_tuner_comm_t& comm) {
  constexpr size_t kWithCuda = offsetof(plexus_tuner_comm_t, cuda) + sizeof(comm.cuda);
  return comm.struct_size >= kWithCuda && comm.cuda.sm > 0;
}

CudaAnswer predict_cuda(const Calibration& calibration,
                        const plexus_tuner_comm_t& comm,
                        const plexus_tuner_call_t& call,
                        const plexus_tuner_candidate_t& candidate) {
  if (candidate.chunks_per_loop == 0 || candidate.chunk_bytes == 0 || candidate.chunks_moved == 0 ||
      comm.nranks == 0) {
    return {.time_us = -1, .channels = candidate.channels};
  }
  const Protocol protocol = protocol_of(candidate);
  const Generation& generation = generation_of(comm.cuda.sm);
  const double link = link_gb_per_s(calibration, comm, candidate, generation);
  const double memory = comm.cuda.memory_mbit_per_s > 0
                            ? static_cast<double>(comm.cuda.memory_mbit_per_s) / kMbitOfGb
                            : kMemoryGbPerS;
  const double sharers = std::max(1U, comm.cuda.ranks_per_device);
  const bool shared = share_device(comm);
  const double channel_gb = shared ? kChannelGbPerSShared[protocol]
                            : protocol == kLL128
                                ? generation.channel_ll128
                                : generation.channel_simple * kEfficiency[protocol];

  // Ranks that share a device take all its blocks: fewer do not saturate its memory.
  const auto size_bytes = std::max(1.0, static_cast<double>(call.size_bytes));
  const double useful = sharers > 1 ? std::max(1U, candidate.channels_max)
                                    : std::ceil(link * kEfficiency[protocol] / channel_gb);
  const double channels = channels_for(comm, candidate, size_bytes, useful);

  const auto chunks = static_cast<double>(candidate.chunks_per_loop);
  const double chunk_bytes = std::min(static_cast<double>(candidate.chunk_bytes),
                                      std::max(1.0, std::ceil(size_bytes / (chunks * channels))));
  const double loops = std::max(1.0, std::ceil(size_bytes / (chunks * channels * chunk_bytes)));
  const double moved = loops * static_cast<double>(candidate.chunks_moved);  // per channel
  const size_t hosts = std::min<size_t>(std::max(comm.nnodes, 1U), 3) - 1;
  double gb_per_s = std::min(link * kEfficiency[protocol], channels * channel_gb);
  if (protocol == kLL) {
    gb_per_s = std::min(gb_per_s, generation.most_ll[hosts]);
  }
  const double link_us = moved * channels * chunk_bytes / (gb_per_s * kBytesPerUsOfGb);

  const bool has_totals = candidate.chunks_in_all > 0;
  const double per_rank = has_totals ? static_cast<double>(candidate.chunks_in_all) / comm.nranks
                                     : static_cast<double>(candidate.chunks_moved);
  // Who exchanges whole buffers replaces what a peer reads, and so sends a copy in each round.
  const bool copies =
      shared && candidate.chunks_per_loop == 1 && candidate.rounds <= candidate.chunks_reduced;
  const double touched = 2 * per_rank + static_cast<double>(candidate.chunks_reduced) +
                         (copies ? 2.0 * candidate.rounds : 0);
  const double memory_us = loops * touched * sharers * channels * chunk_bytes /
                           kEfficiency[protocol] / (memory * kBytesPerUsOfGb);

  const bool tells_xdc = comm.links[PLEXUS_LINK_XDC].count > 0 && candidate.xdc_rounds > 0;
  const double leaving_bytes =
      loops * static_cast<double>(candidate.xdc_chunks) * channels * chunk_bytes;
  const double xdc_us = tells_xdc ? candidate.xdc_rounds * xdc_latency_us(calibration, comm) +
                                        leaving_bytes / (link * kBytesPerUsOfGb)
                                  : 0;
  const bool in_turn = shared && candidate.chunks_per_loop > 1 &&
                       (protocol != kSimple || chunk_bytes < kAddressedBytesShared);
  const double messages_us =
      in_turn ? std::max(0.0, moved - candidate.rounds) * kMessageUsShared : 0;
  const double chunk_us = channels * chunk_bytes / (gb_per_s * kBytesPerUsOfGb);
  const double fill_us = std::max(0.0, candidate.rounds - moved) * chunk_us;
  const double time_us = (shared ? kCallUsShared : kCallUs)[protocol] +
                         candidate.rounds * hop_us(calibration, comm, candidate, tells_xdc) +
                         messages_us + std::max(link_us, memory_us) + fill_us + xdc_us;
  return {.time_us = time_us, .channels = static_cast<uint32_t>(channels)};
}

}  // namespace plexus::tuner_default
