// SPDX-License-Identifier: Apache-2.0
// Progress of a job's processes for their launcher: a page of a file that both have mapped. The
// launcher only reads; counters that stand still mean a hang.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

namespace plexus::soak {

constexpr size_t kThreadsMax = 32;

enum class Phase : int32_t { kNotBegun, kBeforeCall, kInCall, kPolling, kInSync, kPausing, kEnded };

struct ThreadProgress {
  std::atomic<int32_t> step;
  std::atomic<Phase> phase;
  std::atomic<uint64_t> ncalls;
  std::atomic<uint64_t> nchecked;
};

struct ProcessProgress {
  std::array<ThreadProgress, kThreadsMax> threads;  // by thread of the job
  std::atomic<int32_t> has_failed;
};

struct Unmap {
  void operator()(ProcessProgress* page) const;
};
using ProgressPage = std::unique_ptr<ProcessProgress, Unmap>;

/// Maps the file and creates it if necessary. Ends the process on failure.
ProgressPage map_progress(const std::string& path);

const char* name_of(Phase phase);

}  // namespace plexus::soak
