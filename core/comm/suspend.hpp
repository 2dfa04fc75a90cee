// SPDX-License-Identifier: Apache-2.0
// ncclCommSuspend: a communicator that gives its connections and the memory for messages back, and
// makes them again when its calls need them after ncclCommResume. And what memory that is.
#pragma once

#include <cstddef>

#include "core/comm/communicator.hpp"

namespace plexus {

/// Collective; in a group done at its end. kInvalidUsage, on all ranks, when one of them cannot:
/// nothing is given back then, and the communicator stays usable.
Result<void> suspend(Communicator& comm);
/// Resumes this rank alone: calls wait for ranks that have not resumed.
Result<void> resume(Communicator& comm);

/// What one rank holds for messages now.
struct HeldMemory {
  size_t suspendable = 0;  // slots of connections, and what plans compute in
  size_t lasting = 0;      // counters of signals
  bool is_suspended = false;
};
Result<HeldMemory> measure_memory(Communicator& comm);

}  // namespace plexus
