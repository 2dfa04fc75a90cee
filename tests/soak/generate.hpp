// SPDX-License-Identifier: Apache-2.0
// Makes a job from a seed that is legal by construction: all threads execute their parts of one
// order of operations. perturb() then changes the order in single threads, as far as the model
// allows.
#pragma once

#include <array>
#include <bitset>
#include <cstdint>
#include <string_view>

#include "tests/soak/program.hpp"
#include "tests/soak/random.hpp"

namespace plexus::soak {

/// A pause after which a thread is late: the library checks calls that wait for more than a second.
constexpr int kLateUsMin = 1'500'000;
constexpr int kLateUsMax = 3'500'000;

/// Features that --without switches off and --only restricts to.
enum class Feature {
  kThreads,      // ranks as threads of a process
  kSingle,       // several ranks driven by one thread
  kProcesses,    // more than one
  kNet,          // transports over the network
  kOfi,          // net-ofi, where it was built
  kAsync,        // streams
  kNonBlocking,  // communicators
  kLate,         // pauses of seconds
  kFork,
  kDestroy,  // in the middle of the program
  kSplit,
  kShrink,
  kPairs,  // send and recv
  kGroups,
  kMixed,       // groups of collectives and send/recv on one communicator
  kVariable,    // those of plexus.h with counts per rank
  kRegistered,  // ncclMemAlloc
  kInPlace,
  kAlgo,   // NCCL_ALGO, PLEXUS_DETERMINISTIC
  kProto,  // NCCL_PROTO
  kReorder,
  kContainers,  // Container
  kStdio,       // closed descriptors 0 to 2
  kEndings,     // ends without ncclCommDestroy
  kRates,       // busy hosts that are measured
  kConfig,      // ncclCollConfig_t
  kSuspend,
  kPuts,  // ncclPutSignal, ncclWaitSignal
  kCount
};
constexpr size_t kNumFeatures = static_cast<size_t>(Feature::kCount);
constexpr std::array<std::string_view, kNumFeatures> kFeatureNames = {
    "threads",    "single", "processes", "net",     "ofi",    "async",   "nonblocking",
    "late",       "fork",   "destroy",   "split",   "shrink", "p2p",     "groups",
    "mixed",      "v",      "memalloc",  "inplace", "algo",   "proto",   "reorder",
    "containers", "stdio",  "endings",   "rates",   "config", "suspend", "puts"};

class Features {
 public:
  [[nodiscard]] bool has(Feature feature) const { return on_[static_cast<size_t>(feature)]; }
  void set(Feature feature, bool is_on) { on_[static_cast<size_t>(feature)] = is_on; }
  void set_all(bool is_on) { is_on ? on_.set() : on_.reset(); }

 private:
  std::bitset<kNumFeatures> on_ = std::bitset<kNumFeatures>().set();
};

/// `faults`: kinds of which the job has one; none: it has no fault.
Job generate(uint64_t seed, const Features& features, const FaultKinds& faults = {});

/// Processes, threads and settings (layout.cpp).
void choose_layout(Job& job, Random& random, const Features& features);
/// What processes find around them and how they end; of a job without a fault (surroundings.cpp).
/// Changes nothing else of what the seed means.
void choose_surroundings(Job& job, const Features& features);
/// Changes the order of calls while the job stays legal (perturb.cpp).
void perturb(Job& job, Random& random);
/// A number of elements such that `nblocks` blocks of them stay within a few MiB (shapes.cpp).
size_t pick_count(Random& random, ncclDataType_t type, int nblocks);
/// A type and reduction with exact results for `nranks` ranks.
void pick_reduction(Random& random, Operation& operation, int nranks);

}  // namespace plexus::soak
