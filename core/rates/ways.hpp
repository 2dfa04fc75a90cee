// SPDX-License-Identifier: Apache-2.0
// In which way the processes of a host pass a message of given size: by what the kernel allows them
// and by the rates of the host. Pure, of values that all ranks share.
#pragma once

#include <cstdint>
#include <limits>

#include "core/rates/rates.hpp"

namespace plexus {

/// A size that no message has.
inline constexpr uint32_t kNoAttach = std::numeric_limits<uint32_t>::max();

/// What the processes of the hosts may do with each other's memory, and how fast.
struct HostWays {
  bool attach = false;        // read it by system calls
  int64_t attach_bytes = -1;  // PLEXUS_ATTACH_BYTES; -1: as the rates say
  bool measured = false;      // the rates are these hosts'
  HostRates rates = built_in_rates();
};

struct MessageTraits {
  uint64_t size_bytes = 0;
  bool both_ways = true;  // a rank receives about as much as it sends, at the same time
  bool reduces = false;   // what arrives is combined
};

struct WayChoice {
  uint32_t attach_bytes_min = kNoAttach;  // plain memory of so many bytes is read by system calls
  bool maps = true;                       // mapped memory is read through the mapping
};
WayChoice choose_way(const HostWays& ways, const MessageTraits& message);

/// Until a rank that waits can use the smallest message.
uint64_t message_latency_ns(const HostWays& ways);
/// Of plain memory that is exchanged in pieces that caches hold, in the fastest possible way.
uint64_t bandwidth_mbit_per_s(const HostWays& ways);

}  // namespace plexus
