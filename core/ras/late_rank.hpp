// SPDX-License-Identifier: Apache-2.0
// Who keeps the others waiting at each call, by the times that ranks spend inside their calls and
// in between (core/engine/arrival_times.hpp). Pure.
#pragma once

#include <cstdint>
#include <optional>

#include "core/ras/ras_job.hpp"

namespace plexus {

struct LateRank {
  int rank;
  double late_us;    // by how much it comes last to each call
  double period_us;  // from one call to the next
  uint64_t first;    // numbers of the collectives that were compared
  uint64_t last;
};

/// The rank of `comm` that spends more of its time outside of calls than the others, by a twentieth
/// of the time at least (a tenth, if only 16 calls can be compared) and well apart from all others,
/// in all windows of calls that the ranks still have. nullopt: there is none, or a rank has not
/// answered.
[[nodiscard]] std::optional<LateRank> find_late_rank(const JobRoll& roll, const RasComm& comm);

}  // namespace plexus
