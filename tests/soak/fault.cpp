// SPDX-License-Identifier: Apache-2.0
#include "tests/soak/fault.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "tests/soak/program.hpp"

namespace plexus::soak {
namespace {

using Texts = std::span<const std::string_view>;

// What an error says of its cause, after the name of the guilty rank.
constexpr std::string_view kLost[] = {"died or lost its connection",
                                      "lost the connection to",
                                      "has left or died",
                                      "cannot be reached",
                                      "no process listens there any more",
                                      "closed the connection",
                                      "did not come",
                                      "does not answer",
                                      "does not get a connection",
                                      "has ended",
                                      "died"};
constexpr std::string_view kOfDescriptors[] = {"file descriptor", "open files", "RLIMIT_NOFILE",
                                               "called ncclCommAbort"};
constexpr std::string_view kOfMismatch[] = {"differ", "waits", "calls", "called", "disagree"};
constexpr std::string_view kOfAbort[] = {"called ncclCommAbort", "aborted"};
constexpr std::string_view kOfQueued[] = {"called ncclCommAbort", "aborted",   "revoked",
                                          "did not come",         "has ended", "died"};

// What a log says of who keeps others waiting.
constexpr std::string_view kStopped[] = {"does not answer"};
constexpr std::string_view kSlow[] = {"does not answer", "is still at work", "has not made that"};
constexpr std::string_view kCutOff[] = {"does not answer", "that does not arrive",
                                        "is held up by its network"};
constexpr std::string_view kOtherCall[] = {"has not made that", "is still at work"};

constexpr int kSoon = 20;      // seconds
constexpr int kSilence = 120;  // a network that vanishes is noticed after 30 s, by each in turn
constexpr int kPlenty = 60;

constexpr Expectation harmless(int bound_s, Texts waits = {}) {
  return {.is_harmless = true, .bound_s = bound_s, .waits = waits};
}
constexpr Expectation fatal(int bound_s, Texts causes, Texts waits = {}) {
  return {.is_harmless = false, .bound_s = bound_s, .causes = causes, .waits = waits};
}

// Indexed by kind.
constexpr std::array<Expectation, kNumFaults> kExpectations = {
    fatal(kSoon, kLost),              // kill
    harmless(kPlenty, kStopped),      // stop
    fatal(kPlenty, kLost, kStopped),  // freeze: see FaultWatch, which ends the process at last
    harmless(kPlenty, kSlow),         // slow
    harmless(kPlenty, kCutOff),       // drop
    harmless(kPlenty, kCutOff),       // gap
    fatal(kSilence, kLost, kCutOff),  // cut
    fatal(kSilence, kLost, kCutOff),  // half-open
    fatal(kSilence, kLost, kCutOff),  // reset
    harmless(kPlenty),                // unauthenticated
    harmless(kPlenty),                // full log
    harmless(kPlenty),                // full /dev/shm
    fatal(kSoon, kOfDescriptors),     // descriptors
    fatal(kSoon, kOfMismatch, kOtherCall),  // mismatch
    fatal(kSoon, kOfAbort),                 // abort
    fatal(kSoon, kOfQueued),                // queued
    harmless(kPlenty),                      // refused
};

/// Threads' steps of one kind, as (thread, step).
std::vector<std::pair<int, int>> steps_of(const Job& job, StepKind kind) {
  std::vector<std::pair<int, int>> found;
  for (size_t thread = 0; thread < job.threads.size(); ++thread) {
    const auto& steps = job.threads[thread].steps;
    for (size_t step = 0; step < steps.size(); ++step) {
      if (steps[step].kind == kind) {
        found.emplace_back(static_cast<int>(thread), static_cast<int>(step));
      }
    }
  }
  return found;
}

class FaultMaker {
 public:
  FaultMaker(Job& job, Random& random) : job_(job), random_(random), fault_(*job.fault) {}

  void make() {
    choose_place();
    choose_details();
    if (fault_.kind == FaultKind::kMismatch) {
      alter_call();
    } else if (fault_.kind == FaultKind::kAbort) {
      choose_abort();
    }
    if (fault_.recovery != Recovery::kNone) {
      keep_world();
    }
  }

 private:
  void choose_place() {
    fault_.thread = random_.below(static_cast<int>(job_.threads.size()));
    const Thread& thread = job_.threads[static_cast<size_t>(fault_.thread)];
    fault_.process = thread.process;
    constexpr int kInInitPercent = 12;  // the first step makes the communicator of all
    fault_.step =
        random_.chance(kInInitPercent) ? 0 : random_.below(static_cast<int>(thread.steps.size()));
    fault_.delay_us = random_.chance(50) ? random_.below(500) : random_.below(20'000);
  }

  void choose_details() {
    fault_.percent = random_.between(1, 20);
    fault_.direction = static_cast<Direction>(random_.below(3));
    fault_.has_little_cpu = random_.chance(50);
    fault_.descriptors = random_.between(6, 70);
    fault_.revokes = random_.chance(50);
    switch (fault_.kind) {
      case FaultKind::kKill:
        fault_.recovery = static_cast<Recovery>(random_.below(4));
        fault_.grows = fault_.recovery != Recovery::kNone && random_.chance(50);
        break;
      case FaultKind::kStop:
        fault_.lasts_ms = random_.between(50, 8000);
        break;
      case FaultKind::kGap:
        fault_.lasts_ms = random_.between(50, 5000);
        break;
      case FaultKind::kSlow:
      case FaultKind::kDrop:
        fault_.lasts_ms = random_.between(500, 3000);
        break;
      case FaultKind::kUnauthenticated:
        fault_.lasts_ms = random_.between(100, 15'000);
        break;
      case FaultKind::kQueued:  // the thread itself does it, before its step
        fault_.delay_us = 0;
        break;
      case FaultKind::kHalfOpen:
        fault_.direction = random_.chance(50) ? Direction::kIn : Direction::kOut;
        break;
      default:
        break;
    }
  }

  void place_at(std::pair<int, int> at) {
    fault_.thread = at.first;
    fault_.step = at.second;
    fault_.process = job_.threads[static_cast<size_t>(at.first)].process;
    fault_.delay_us = 0;
  }

  /// One rank's call becomes another one; its buffers are made for that.
  void alter_call() {
    const auto steps = steps_of(job_, StepKind::kCalls);
    if (steps.empty()) {
      return;
    }
    place_at(random_.pick(steps));
    Step& step =
        job_.threads[static_cast<size_t>(fault_.thread)].steps[static_cast<size_t>(fault_.step)];
    Call& call = step.calls[random_.next() % step.calls.size()];
    fault_.operation = call.operation;
    Operation altered = job_.operations[static_cast<size_t>(call.operation)];
    const int nranks =
        static_cast<int>(job_.comms[static_cast<size_t>(altered.comm)].members.size());
    switch (random_.below(altered.op == Op::kPair ? 2 : 4)) {
      case 0:
        altered.count += static_cast<size_t>(random_.between(1, 1000));
        break;
      case 1:
        altered.type = altered.type == ncclInt32 ? ncclInt64 : ncclInt32;
        break;
      case 2:
        altered.root = (altered.root + 1) % nranks;
        altered.op = Op::kBroadcast;
        break;
      default:
        altered.op = altered.op == Op::kAllReduce ? Op::kAllGather : Op::kAllReduce;
        altered.reduction =
            altered.reduction == Reduction::kMax ? Reduction::kMin : Reduction::kMax;
        break;
    }
    call.operation = fault_.altered = static_cast<int>(job_.operations.size());
    job_.operations.push_back(altered);
  }

  void choose_abort() {
    const auto steps = steps_of(job_, StepKind::kCalls);
    if (steps.empty()) {
      return;
    }
    place_at(random_.pick(steps));
    const Step& step =
        job_.threads[static_cast<size_t>(fault_.thread)].steps[static_cast<size_t>(fault_.step)];
    fault_.rank = random_.below(static_cast<int>(step.calls.size()));
    // A communicator that is polled must exist, so nobody may abort it meanwhile.
    fault_.is_in_call = !job_.is_nonblocking && random_.chance(50);
    fault_.delay_us = fault_.is_in_call ? random_.between(500, 3000) : 0;
  }

  /// The communicator of all, which those who are left shrink, is there until the end.
  void keep_world() {
    for (Thread& thread : job_.threads) {
      for (Step& step : thread.steps) {
        std::erase_if(step.places, [](const Place& place) { return place.comm == 0; });
      }
    }
  }

  Job& job_;
  Random& random_;
  Fault& fault_;
};

}  // namespace

void FaultKinds::add(std::string_view name) {
  if (name == "all") {
    on_.set();
  }
  const auto at = std::find(kFaultNames.begin(), kFaultNames.end(), name);
  if (at != kFaultNames.end()) {
    on_.set(static_cast<size_t>(at - kFaultNames.begin()));
  }
}

std::vector<FaultKind> FaultKinds::list() const {
  std::vector<FaultKind> kinds;
  for (size_t kind = 0; kind < kNumFaults; ++kind) {
    if (on_[kind]) {
      kinds.push_back(static_cast<FaultKind>(kind));
    }
  }
  return kinds;
}

const Expectation& expectation_of(FaultKind kind) {
  return kExpectations[static_cast<size_t>(kind)];
}

bool is_of_network(FaultKind kind) {
  return kind == FaultKind::kDrop || kind == FaultKind::kGap || kind == FaultKind::kCut ||
         kind == FaultKind::kHalfOpen || kind == FaultKind::kReset;
}

FaultKind choose_kind(uint64_t seed, const FaultKinds& kinds) {
  constexpr uint64_t kSalt = 0xfa0175;
  Random random(mix(seed, kSalt));
  return random.pick(kinds.list());
}

void add_fault(Job& job, Random& random) { FaultMaker(job, random).make(); }

std::string describe(const Fault& fault) {
  constexpr std::string_view kDirections[] = {"both directions", "to it", "from it"};
  constexpr std::string_view kRecoveries[] = {"nothing", "shrink (abort)", "shrink",
                                              "revoke, shrink"};
  return fmt::format(
      "{}: process {}, at step {} of thread {} after {} us; for {} ms; {} % of packets, {}; {} "
      "descriptors; {}{}{}; then {}{}",
      kFaultNames[static_cast<size_t>(fault.kind)], fault.process, fault.step, fault.thread,
      fault.delay_us, fault.lasts_ms, fault.percent,
      kDirections[static_cast<size_t>(fault.direction)], fault.descriptors,
      fault.has_little_cpu ? "little CPU" : "pauses", fault.is_in_call ? "; during the call" : "",
      fault.revokes ? "; revokes" : "", kRecoveries[static_cast<size_t>(fault.recovery)],
      fault.grows ? ", grow" : "");
}

}  // namespace plexus::soak
