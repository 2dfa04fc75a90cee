// SPDX-License-Identifier: Apache-2.0
// The order in which an attempt of the search tries ranks and NICs. It reads the bandwidth that is
// left and changes nothing.
#pragma once

#include <cstdint>
#include <vector>

#include "core/topo/attempt.hpp"
#include "core/topo/options.hpp"
#include "core/topo/system.hpp"

namespace plexus {

class SearchOrder {
 public:
  /// `system`: as it is at each call; both are borrowed.
  SearchOrder(const System& system, const TopoOptions& options);

  /// Ranks to try after `rank` in the channel that `attempt` builds. `used`: by rank, a bit for
  /// each channel that has it. `net_in` 1: the next rank goes to the NIC; -1: a later rank does; 0:
  /// no NIC.
  [[nodiscard]] std::vector<int> next_ranks(const Attempt& attempt,
                                            const std::vector<uint64_t>& used,
                                            int rank,
                                            int net_in) const;
  /// Ports whose path is of type `worst` or better; `rank` -1: those of all ranks.
  [[nodiscard]] std::vector<int> select_nets(PathType worst, int rank) const;

 private:
  const System& system_;
  const TopoOptions& options_;
  int ranks_;
  std::vector<std::vector<int>> preferred_nets_;  // by rank, for consecutive channels
};

}  // namespace plexus
