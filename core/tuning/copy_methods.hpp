// SPDX-License-Identifier: Apache-2.0
// Chooses the copy method by which two processes of a host pass a message: from what the kernel
// allows them and from the rates of the host. Pure, over values that all ranks share, so that all
// ranks choose alike.
//
//   HostCopyMethods methods{.attach = true, .measured = true, .rates = built_in_rates()};
//   const CopyChoice choice = choose_copy_method(methods, {.size_bytes = 1 << 20});
//   const bool reads_by_system_call = choice.attach_bytes_min <= 1 << 20;
#pragma once

#include <cstdint>
#include <limits>

#include "core/tuning/rates.hpp"

namespace plexus {

/// A size that no message has.
inline constexpr uint32_t kNoAttach = std::numeric_limits<uint32_t>::max();

/// What the processes of the hosts may do with each other's memory, and how fast.
struct HostCopyMethods {
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

struct CopyChoice {
  uint32_t attach_bytes_min = kNoAttach;  // plain memory of so many bytes is read by system calls
  bool maps = true;                       // mapped memory is read through the mapping
};
CopyChoice choose_copy_method(const HostCopyMethods& methods, const MessageTraits& message);

/// The time until a rank that waits can use the smallest message.
uint64_t message_latency_ns(const HostCopyMethods& methods);
/// The bandwidth of plain memory, exchanged in pieces that caches hold, by the fastest method.
uint64_t bandwidth_mbit_per_s(const HostCopyMethods& methods);

}  // namespace plexus
