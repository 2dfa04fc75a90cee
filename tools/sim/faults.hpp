// SPDX-License-Identifier: Apache-2.0
// Slow links, slow ranks and cut links of a simulation: the scripts of net-chaos (its README has
// the grammar), with ranks for selectors. Deterministic: the same script, seed and job give the
// same bits.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string_view>

#include "core/base/result.hpp"
#include "plugins/net-chaos/script.hpp"

namespace plexus {

/// An end of a connection: of its rank, the `number`-th of its direction.
struct SimEnd {
  int rank = 0;
  int peer = 0;
  uint32_t number = 0;
};

/// What happens to the messages of one connection.
struct SimLinkFaults {
  double delay_us = 0;
  double jitter_us = 0;
  double us_per_byte = 0;
  uint64_t stall_every_bytes = 0;  // 0: never
  double stall_us = 0;
  uint64_t cut_at_byte = std::numeric_limits<uint64_t>::max();
  [[nodiscard]] bool any() const {
    return delay_us > 0 || jitter_us > 0 || us_per_byte > 0 || stall_every_bytes > 0 ||
           cut_at_byte != std::numeric_limits<uint64_t>::max();
  }
};

class SimFaults {
 public:
  /// An Error names the word that is wrong, or an effect that the simulator does not have.
  static Result<SimFaults> parse(std::string_view script, uint64_t seed);

  [[nodiscard]] SimLinkFaults of_link(const SimEnd& sender, const SimEnd& receiver) const;
  /// What each step of the rank takes longer.
  [[nodiscard]] double slow_us(int rank) const;
  /// From 0 to 1, for a message of a connection.
  [[nodiscard]] double random(uint64_t connection, uint64_t message) const;

 private:
  SimFaults(net_chaos::Script script, uint64_t seed) : script_(std::move(script)), seed_(seed) {}

  net_chaos::Script script_;
  uint64_t seed_;
};

}  // namespace plexus
