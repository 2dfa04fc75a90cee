// SPDX-License-Identifier: Apache-2.0
#include "tools/conformance/fixture.hpp"

#include <csignal>
#include <cstdlib>
#include <unistd.h>
#include <utility>

#include "tools/conformance/pause.hpp"
#include "tools/conformance/run_delay.hpp"

namespace plexus::conformance {
namespace {

using Clock = std::chrono::steady_clock;

}  // namespace

int Subject::nccl_version() const { return abi.starts_with('v') ? std::atoi(abi.c_str() + 1) : 0; }

Fixture::Fixture(Options options, ProcessStatus& status)
    : options_(std::move(options)),
      status_(&status),
      monitor_(status),
      trace_(options_.subject.trace, options_.role) {
  options_.peer_link.attach(status, options_.peer, bound(kWait), trace_);
}

Result<void> Fixture::wait_until(const std::function<std::string()>& what,
                                 const std::function<Result<bool>()>& step,
                                 milliseconds limit) {
  FairDeadline deadline(bound(limit));
  const Pause pause;
  while (true) {
    PLEXUS_TRY(is_done, step());
    if (is_done) {
      return ok();
    }
    if (deadline.is_over()) {
      return wrong("timed out after {} ms: {}", bound(limit).count(), what());
    }
    pause.rest();
  }
}

Result<void> Fixture::repeat_for(milliseconds time, const std::function<Result<void>()>& step) {
  const auto end = Clock::now() + time;
  const Pause pause;
  while (true) {  // at least once: on a busy machine the time may pass before the first step
    PLEXUS_TRY(step());
    if (Clock::now() >= end) {
      return ok();
    }
    pause.rest();
  }
}

void Fixture::die() {
  status_->state = ProcessState::kDiedOnPurpose;
  ::kill(::getpid(), SIGKILL);
  ::_exit(1);  // not reached
}

}  // namespace plexus::conformance
