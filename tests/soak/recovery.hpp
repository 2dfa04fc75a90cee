// SPDX-License-Identifier: Apache-2.0
// How the ranks that are left go on after a death: they make a communicator without the dead ones,
// and, where the fault says so, let it grow by those of a fresh process. Results are checked.
#pragma once

#include <atomic>
#include <cstdint>
#include <nccl.h>
#include <optional>
#include <string>
#include <vector>

#include "tests/soak/program.hpp"
#include "tests/soak/progress.hpp"

namespace plexus::soak {

/// One thread's part.
struct Survivor {
  const Job& job;
  const std::string& folder;
  const std::vector<int>& ranks;  // of the world
};

/// `worlds`: the communicators of all, of the thread's ranks. `went_on_us` is set when the first
/// result is there. Returns what is wrong.
std::optional<std::string> go_on_without_guilty(const Survivor& survivor,
                                                const std::vector<ncclComm_t>& worlds,
                                                std::atomic<int64_t>& went_on_us);

/// The fresh process, with the ranks of the guilty one.
std::optional<std::string> join_as_fresh(const Job& job,
                                         const std::string& folder,
                                         const ProcessProgress& page);

}  // namespace plexus::soak
