// SPDX-License-Identifier: Apache-2.0
// Progress of a job's processes for their launcher: a page of a file that both have mapped.
// Counters that stand still mean a hang. The launcher writes `order` and nothing else.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

namespace plexus::soak {

constexpr size_t kThreadsMax = 32;

enum class Phase : int32_t {
  kNotBegun,
  kBeforeCall,
  kInCall,
  kPolling,
  kInSync,
  kPausing,
  kWaiting,  // for the launcher's order
  kEnded
};

/// To the processes of a job with a fault.
enum class Order : int32_t {
  kRun,
  kSomebodyLeft,  // what a process waits for outside the library may never come
  kGoOn,  // the guilty process has ended, and all threads wait: make a communicator without it
  kLeave,
};

/// The first error of a thread in a job with a fault.
struct ErrorReport {
  std::atomic<int64_t> at_us;  // 0: none; written last
  int32_t step;
  int32_t code;
  std::array<char, 1500> text;
};

struct ThreadProgress {
  std::atomic<int32_t> step;
  std::atomic<Phase> phase;
  std::atomic<uint64_t> ncalls;
  std::atomic<uint64_t> nchecked;
  ErrorReport error;
  std::atomic<int64_t> went_on_us;  // had a right result without the guilty process; 0: not
};

struct ProcessProgress {
  std::array<ThreadProgress, kThreadsMax> threads;  // by thread of the job
  std::atomic<int32_t> has_failed;
  std::atomic<Order> order;
  std::atomic<int64_t> struck_us;     // when the fault struck in this process; 0: not
  std::atomic<int32_t> ndescriptors;  // that were not there in the beginning, when the process ends
  std::atomic<int32_t> nthreads;      // likewise
};

/// Reads the clock that all processes share.
int64_t now_us();
/// The factor by which time limits are stretched where all is slower (under sanitizers).
double time_factor();

struct Unmap {
  void operator()(ProcessProgress* page) const;
};
using ProgressPage = std::unique_ptr<ProcessProgress, Unmap>;

/// Maps the file and creates it if necessary. Ends the process on failure.
ProgressPage map_progress(const std::string& path);

const char* name_of(Phase phase);

}  // namespace plexus::soak
