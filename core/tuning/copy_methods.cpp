// SPDX-License-Identifier: Apache-2.0
#include "core/tuning/copy_methods.hpp"

#include <algorithm>

namespace plexus {
namespace {

// Shorter rests of a message are copied through slots: a system call takes longer.
constexpr uint32_t kPieceBytesMin = 4096;
// What is combined is stored in a cache first and read from there. In slots it is combined at once.
constexpr double kCombining = 1.1;
// Both copy methods of registered memory copy once: the mapping is kept unless it is clearly
// slower.
constexpr double kClearly = 1.1;
// How much nearer a host's cores may be than when they were measured. Slots gain by that, system
// calls do not: 256 KiB took 20.4 us and 19.7 between far cores, then 7.3 and 18.9 between near
// ones.
constexpr double kMayBeNearer = 1.25;

}  // namespace

CopyChoice choose_copy_method(const HostCopyMethods& methods, const MessageTraits& message) {
  if (!methods.attach) {
    return {};
  }
  if (methods.attach_bytes >= 0) {
    return {.attach_bytes_min = static_cast<uint32_t>(methods.attach_bytes)};
  }
  const PairRates& rates = methods.rates.slowest();
  const double attach =
      rates.time_ns(CopyMethod::kAttach, message.size_bytes) * (message.reduces ? kCombining : 1);
  if (attach <= 0 || message.size_bytes < kPieceBytesMin) {
    return {};
  }
  // Sender and receiver copy at the same time; a rank that does both does one after the other.
  const double slots =
      rates.time_ns(CopyMethod::kThroughSlots, message.size_bytes) / (message.both_ways ? 1 : 2);
  const double mapped = rates.time_ns(CopyMethod::kMapped, message.size_bytes);
  return {.attach_bytes_min = attach * kMayBeNearer < slots ? kPieceBytesMin : kNoAttach,
          .maps = attach * kClearly > mapped};
}

uint64_t message_latency_ns(const HostCopyMethods& methods) {
  constexpr uint64_t kInstructionsNs = 100;  // of sender and receiver, besides the cache line
  return methods.rates.slowest().line_ns + kInstructionsNs;
}

uint64_t bandwidth_mbit_per_s(const HostCopyMethods& methods) {
  constexpr uint64_t kBytes = uint64_t{256} << 10;
  constexpr double kMbitOfByteInNs = 8000;
  const PairRates& rates = methods.rates.slowest();
  double ns = rates.time_ns(CopyMethod::kThroughSlots, kBytes);
  if (const double attach = rates.time_ns(CopyMethod::kAttach, kBytes);
      methods.attach && attach > 0) {
    ns = std::min(ns, attach);
  }
  return static_cast<uint64_t>(static_cast<double>(kBytes) * kMbitOfByteInNs / ns);
}

}  // namespace plexus
