// SPDX-License-Identifier: Apache-2.0
// Faults of a job: what goes wrong, where and when. A seed names them as it names the program. What
// must happen then is in the table of expectations.
#pragma once

#include <array>
#include <bitset>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tests/soak/random.hpp"

namespace plexus::soak {

struct Job;

enum class FaultKind {
  kKill,             // SIGKILL
  kStop,             // SIGSTOP, and SIGCONT after a time
  kFreeze,           // SIGSTOP for good
  kSlow,             // a process pauses before each call, or has little CPU
  kDrop,             // the network loses packets
  kGap,              // the network loses all packets for a time
  kCut,              // the network loses all packets of a process for good
  kHalfOpen,         // likewise, but only those to the process, or those from it
  kReset,            // the connections of a process are reset
  kUnauthenticated,  // peers without the secret connect to all listening ports
  kFullLog,          // no space is left where the log goes
  kFullShm,          // no space is left in /dev/shm
  kDescriptors,      // a process may open few files
  kMismatch,         // one rank's call differs from the others'
  kAbort,            // a rank calls ncclCommAbort
  kQueued,   // likewise for all its communicators, or ncclCommRevoke, with a call of each queued
             // on one stream: the last one first
  kRefused,  // a seccomp filter refuses process_vm_readv and memfd_create from then on
  kCount
};
constexpr size_t kNumFaults = static_cast<size_t>(FaultKind::kCount);
constexpr std::array<std::string_view, kNumFaults> kFaultNames = {
    "kill",      "stop",   "freeze",          "slow",    "drop",    "gap",         "cut",
    "half-open", "reset",  "unauthenticated", "fulllog", "fullshm", "descriptors", "mismatch",
    "abort",     "queued", "refused"};

class FaultKinds {
 public:
  [[nodiscard]] bool any() const { return on_.any(); }
  [[nodiscard]] bool has(FaultKind kind) const { return on_[static_cast<size_t>(kind)]; }
  void add(FaultKind kind) { on_.set(static_cast<size_t>(kind)); }
  /// "all", or a name of kFaultNames.
  void add(std::string_view name);
  [[nodiscard]] std::vector<FaultKind> list() const;

 private:
  std::bitset<kNumFaults> on_;
};

enum class Direction { kBoth, kIn, kOut };

/// How the ranks that are left go on after a death.
enum class Recovery { kNone, kShrinkAbort, kShrink, kRevoke };

struct Fault {
  FaultKind kind = FaultKind::kKill;
  int process = 0;                         // the guilty one
  int thread = 0;                          // of the job; it belongs to that process
  int step = 0;                            // of that thread: when it begins
  int delay_us = 0;                        // and after this time, the fault strikes
  int lasts_ms = 0;                        // stop, slow, drop, gap: it is over then
  int percent = 0;                         // drop: of packets
  Direction direction = Direction::kBoth;  // drop, half-open
  bool has_little_cpu = false;             // slow: else it pauses before each step
  int descriptors = 0;
  int operation = -1;       // mismatch: the one that the others call. Its results are undefined
  int altered = -1;         // mismatch: what the guilty rank calls
  int rank = 0;             // abort: index in the thread's ranks
  bool revokes = false;     // queued
  bool is_in_call = false;  // abort: by another thread during the call; else in place of the step
  Recovery recovery = Recovery::kNone;
  bool grows = false;  // after it, to the old number of ranks
};

/// How a fault looks from outside.
struct Expectation {
  bool is_harmless = false;  // every rank ends its program without an error
  int bound_s = 0;           // without progress for so long after it struck, the job hangs
  std::span<const std::string_view> causes{};  // an error that its victims report has one of these
  // Likewise a log of who keeps them waiting; empty: such a fault lets nobody wait for long.
  std::span<const std::string_view> waits{};
};
const Expectation& expectation_of(FaultKind kind);

/// The process has to be alone on its host, with a network that can be broken.
bool is_of_network(FaultKind kind);

/// Chooses the kind; before the layout, which depends on it.
FaultKind choose_kind(uint64_t seed, const FaultKinds& kinds);
/// Chooses the rest for a program that is ready, and changes the program where the fault is a call.
void add_fault(Job& job, Random& random);

std::string describe(const Fault& fault);

}  // namespace plexus::soak
