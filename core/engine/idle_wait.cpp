// SPDX-License-Identifier: Apache-2.0
#include "core/engine/idle_wait.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <immintrin.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "guest/assert.hpp"

namespace plexus {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

// About 20 us, longer than a peer takes for a slot, where a round only polls. Those of progress()
// do more, so that time ends them, too.
constexpr uint32_t kSpinRounds = 2000;
constexpr auto kSpinFor = microseconds(20);
constexpr uint32_t kSpinLookRounds = 16;     // between two reads of the clock
constexpr auto kYieldFor = milliseconds(2);  // then sleep: a futex wake-up takes about 10 us
constexpr auto kSleep =
    microseconds(1000);  // longest sleep, so that aborts and lost wake-ups are noticed
// On a core that others want, a wait spins for about 1 us only, unless the last one slept for so
// short a time that spinning would have cost them less.
constexpr uint32_t kSharedSpinRounds = 100;
constexpr auto kShortSleep = microseconds(40);
constexpr uint32_t kTurnLookRounds = 24;        // turns between two reads of the clock
constexpr size_t kLanesWatched = 16;            // the lanes whose peers can wake a sleeping thread
constexpr auto kPumpSleep = microseconds(100);  // a pump has no wake-up, so it is polled

/// False when all executions wait for kernels that need no pumps: spinning would help none of them.
bool can_spin(std::span<Execution* const> active) noexcept {
  return !std::all_of(active.begin(), active.end(), [](const Execution* execution) {
    return execution->remote != nullptr && !execution->pumps;
  });
}

/// Until the peer of one of `lanes` moves.
void sleep_at(std::span<LaneRun* const> lanes) noexcept {
  PLEXUS_DCHECK(!lanes.empty() && lanes.size() <= kLanesWatched, lanes.size());
  std::array<futex_waitv, kLanesWatched> words{};
  for (size_t i = 0; i < lanes.size(); ++i) {
    std::atomic<uint32_t>& sleeping = own_end(*lanes[i]).sleeping;
    sleeping.store(1, std::memory_order_seq_cst);
    words.at(i) = {.val = 1,
                   .uaddr = reinterpret_cast<uintptr_t>(&sleeping),
                   .flags = FUTEX_32,
                   .__reserved = 0};
  }
  if (std::none_of(lanes.begin(), lanes.end(), [](LaneRun* lane) { return lane->can_go_on(); })) {
    timespec until{};
    clock_gettime(CLOCK_MONOTONIC, &until);
    constexpr int64_t kSecond = 1'000'000'000;
    until.tv_nsec += std::chrono::nanoseconds(kSleep).count();
    until.tv_sec += until.tv_nsec / kSecond;
    until.tv_nsec %= kSecond;
    if (syscall(SYS_futex_waitv, words.data(), lanes.size(), 0, &until, CLOCK_MONOTONIC) < 0 &&
        errno == ENOSYS) {  // before Linux 5.16: the first one wakes this thread, or the time
      const timespec time{0, std::chrono::nanoseconds(kSleep).count()};
      syscall(SYS_futex, words.front().uaddr, FUTEX_WAIT, 1, &time, nullptr, 0);
    }
  }
  for (LaneRun* const lane : lanes) {
    own_end(*lane).sleeping.store(0, std::memory_order_relaxed);
  }
}

}  // namespace

bool IdleWait::spin_or_yield(std::span<Execution* const> active) noexcept {
  ++rounds_;
  if (!can_spin(active)) {
    is_long_ = true;
  }
  if (!is_long_) {
    if (!active.empty() && active.front()->rank->oversubscribed()) {
      give_turn();
      return false;
    }
    const uint32_t spin_rounds = neighbours_.are_known() ? shared_spin_rounds_ : kSpinRounds;
    if (rounds_ < spin_rounds && !has_spun_long()) {
      _mm_pause();
      return false;
    }
    if (!neighbours_.are_known() || !neighbours_.are_there(Clock::now())) {
      yield();
      return false;
    }
    is_long_ = true;
  }
  note_idle(Clock::now());
  return true;
}

bool IdleWait::has_spun_long() noexcept {
  if (rounds_ % kSpinLookRounds != 0) {
    return false;
  }
  const auto now = Clock::now();
  if (rounds_ == kSpinLookRounds) {
    spins_since_ = now;
  }
  return now - spins_since_ > kSpinFor;
}

void IdleWait::note_idle(Clock::time_point now) noexcept {
  if (since_ == Clock::time_point{}) {
    since_ = now;
  }
}

void IdleWait::yield() noexcept {
  const auto before = Clock::now();
  sched_yield();
  const auto after = Clock::now();
  note_idle(before);
  neighbours_.learn(before, after);
  is_long_ = neighbours_.are_known() || after - since_ >= kYieldFor;
}

/// When ranks outnumber cores: a rank that gets the core yields as well, so how long that takes
/// tells nothing of other threads.
void IdleWait::give_turn() noexcept {
  sched_yield();
  if (rounds_ % kTurnLookRounds != 0) {
    return;
  }
  const auto now = Clock::now();
  note_idle(now);
  is_long_ = now - since_ >= kYieldFor;
}

void IdleWait::end() noexcept {
  if (is_long_ && neighbours_.are_known()) {
    shared_spin_rounds_ = Clock::now() - since_ < kShortSleep ? kSpinRounds : kSharedSpinRounds;
  }
  rounds_ = 0;
  is_long_ = false;
  since_ = {};
}

void IdleWait::sleep(std::span<Execution* const> active,
                     std::span<LaneRun* const> polled) noexcept {
  const bool pumps = std::any_of(active.begin(), active.end(), [](const Execution* execution) {
    return !execution->connected || execution->pumps;
  });
  std::array<LaneRun*, kLanesWatched> lanes{};
  size_t count = 0;
  for (LaneRun* const lane : polled) {
    if (count < lanes.size() && lane->waits_at_fifo()) {
      lanes.at(count++) = lane;
    }
  }
  if (pumps || count == 0) {
    const timespec time{0, std::chrono::nanoseconds(kPumpSleep).count()};
    nanosleep(&time, nullptr);
    return;
  }
  sleep_at(std::span(lanes).first(count));
}

}  // namespace plexus
