// SPDX-License-Identifier: Apache-2.0
#include "core/rates/ways.hpp"

#include <algorithm>

namespace plexus {
namespace {

// Shorter rests of a message are copied through slots: a system call takes longer.
constexpr uint32_t kPieceBytesMin = 4096;
// What is combined is stored in a cache first and read from there. In slots it is combined at once.
constexpr double kCombining = 1.1;
// Both ways of registered memory copy once: the mapping is kept unless it is clearly slower.
constexpr double kClearly = 1.1;
// By how much a host's cores may be nearer than when they were measured. Slots gain by that, system
// calls do not: 256 KiB took 20.4 us and 19.7 between far cores, then 7.3 and 18.9 between near
// ones.
constexpr double kMayBeNearer = 1.25;

}  // namespace

WayChoice choose_way(const HostWays& ways, const MessageTraits& message) {
  if (!ways.attach) {
    return {};
  }
  if (ways.attach_bytes >= 0) {
    return {.attach_bytes_min = static_cast<uint32_t>(ways.attach_bytes)};
  }
  const PairRates& rates = ways.rates.slowest();
  const double attach =
      rates.time_ns(Way::kAttach, message.size_bytes) * (message.reduces ? kCombining : 1);
  if (attach <= 0 || message.size_bytes < kPieceBytesMin) {
    return {};
  }
  // Sender and receiver copy at the same time; a rank that does both does one after the other.
  const double slots =
      rates.time_ns(Way::kThroughSlots, message.size_bytes) / (message.both_ways ? 1 : 2);
  const double mapped = rates.time_ns(Way::kMapped, message.size_bytes);
  return {.attach_bytes_min = attach * kMayBeNearer < slots ? kPieceBytesMin : kNoAttach,
          .maps = attach * kClearly > mapped};
}

uint64_t message_latency_ns(const HostWays& ways) {
  constexpr uint64_t kInstructionsNs = 100;  // of sender and receiver, besides the cache line
  return ways.rates.slowest().line_ns + kInstructionsNs;
}

uint64_t bandwidth_mbit_per_s(const HostWays& ways) {
  constexpr uint64_t kBytes = uint64_t{256} << 10;
  constexpr double kMbitOfByteInNs = 8000;
  const PairRates& rates = ways.rates.slowest();
  double ns = rates.time_ns(Way::kThroughSlots, kBytes);
  if (const double attach = rates.time_ns(Way::kAttach, kBytes); ways.attach && attach > 0) {
    ns = std::min(ns, attach);
  }
  return static_cast<uint64_t>(static_cast<double>(kBytes) * kMbitOfByteInNs / ns);
}

}  // namespace plexus
