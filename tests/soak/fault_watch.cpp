// SPDX-License-Identifier: Apache-2.0
#include "tests/soak/fault_watch.hpp"

#include <csignal>
#include <fstream>
#include <string>

#include <fmt/format.h>

#include "tests/soak/progress.hpp"

namespace plexus::soak {
namespace {

constexpr int64_t kMicrosPerMilli = 1000;
constexpr int64_t kMicrosPerSecond = 1'000'000;
constexpr int kAllPercent = 100;

bool tell(pid_t process, int signal) { return process == 0 || kill(process, signal) == 0; }

/// Only one that was stopped by a signal: LeakSanitizer stops its process as a debugger does, and
/// is disturbed by signals.
bool let_go_on(pid_t process) {
  std::ifstream file(fmt::format("/proc/{}/stat", process));
  std::string text;
  std::getline(file, text);
  const size_t at = text.rfind(')');
  const bool is_stopped = at != std::string::npos && text.substr(at).starts_with(") T");
  return !is_stopped || tell(process, SIGCONT);
}

}  // namespace

void FaultWatch::look(int64_t struck_us, const Processes& processes) {
  if (struck_us == 0 || is_over_) {
    return;
  }
  if (struck_us_ == 0) {
    const bool is_from_outside = network_ != nullptr || fault_.kind == FaultKind::kUnauthenticated;
    struck_us_ = is_from_outside ? now_us() : struck_us;
    has_failed_ = !begin(processes.running);
  }
  const int64_t now = now_us();
  const int64_t lasts_us = fault_.kind == FaultKind::kFreeze ? kFreezeSeconds * kMicrosPerSecond
                                                             : fault_.lasts_ms * kMicrosPerMilli;
  if (lasts_us == 0) {
    is_over_ = true;
  } else if (now > struck_us_ + lasts_us) {
    has_failed_ = !end(processes.guilty) || has_failed_;
    // Signals may overtake those that they undo, so they are sent for a while.
    is_over_ = now > struck_us_ + lasts_us + kMicrosPerSecond || network_ != nullptr;
  } else if (fault_.kind == FaultKind::kSlow && fault_.has_little_cpu) {
    keep_slow(now, processes);
  }
}

bool FaultWatch::begin(const std::vector<pid_t>& running) {
  if (fault_.kind == FaultKind::kUnauthenticated) {
    peers_.come(running);
  }
  if (!is_of_network(fault_.kind)) {
    return true;
  }
  if (network_ == nullptr) {
    return false;
  }
  switch (fault_.kind) {
    case FaultKind::kDrop:
      return network_->lose(fault_.process, fault_.percent, fault_.direction);
    case FaultKind::kHalfOpen:
      return network_->lose(fault_.process, kAllPercent, fault_.direction);
    case FaultKind::kReset:
      return network_->reset(fault_.process);
    default:
      return network_->lose(fault_.process, kAllPercent, Direction::kBoth);
  }
}

bool FaultWatch::end(pid_t guilty) {
  switch (fault_.kind) {
    case FaultKind::kStop:
    case FaultKind::kSlow:
      return let_go_on(guilty);
    case FaultKind::kFreeze:
      return tell(guilty, SIGKILL);
    case FaultKind::kDrop:
    case FaultKind::kGap:
      return network_ != nullptr && network_->heal(fault_.process);
    case FaultKind::kUnauthenticated:
      peers_.go();
      return true;
    default:
      return true;
  }
}

/// A tenth of the time it may run.
void FaultWatch::keep_slow(int64_t now, const Processes& processes) {
  constexpr int64_t kPeriodUs = 50 * kMicrosPerMilli;
  if (now % kPeriodUs < kPeriodUs / 10) {
    (void)let_go_on(processes.guilty);
  } else if (processes.is_at_work) {
    (void)tell(processes.guilty, SIGSTOP);
  }
}

}  // namespace plexus::soak
