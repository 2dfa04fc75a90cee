// SPDX-License-Identifier: Apache-2.0
// Measures the rates of this host: two threads on two cores exchange cache lines and buffers, in
// some milliseconds.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "core/base/result.hpp"
#include "core/tuning/rates.hpp"

namespace plexus {

struct CorePair {
  int first;
  int second;
  friend bool operator==(const CorePair&, const CorePair&) = default;
};

/// Two cores to measure at each distance.
struct CorePairs {
  std::optional<CorePair> near;  // share the last cache, and are not siblings of one core
  std::optional<CorePair> far;   // do not share it; of another package, if there is one
};
/// Chooses pairs of `cores` by what the kernel says of them. Where it says nothing they are near.
CorePairs find_core_pairs(std::span<const int> cores, const std::string& sysfs = "/sys");

/// An Error: there are no two cores, the kernel refuses something, or the machine is too busy for
/// times to repeat themselves. Blocks for a fraction of a second at most.
Result<HostRates> measure_host_rates();

}  // namespace plexus
