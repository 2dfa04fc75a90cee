// SPDX-License-Identifier: Apache-2.0
// One-sided operations of all ranks of a communicator: each puts some bytes into a window of the
// next rank and waits for those of the rank before it.
//
//   const auto [result, what] = put_around(comms_of_this_thread, seed);
#pragma once

#include <cstdint>
#include <plexus.h>
#include <vector>

namespace plexus::soak {

struct PutOutcome {
  ncclResult_t result = ncclSuccess;
  const char* what = "";  // the call that returned it, or "WRONG DATA..." for ncclInternalError
};

/// The part of the ranks `comms`, which one thread has. `salt`: equal on all ranks.
PutOutcome put_around(const std::vector<ncclComm_t>& comms, uint64_t salt);

}  // namespace plexus::soak
