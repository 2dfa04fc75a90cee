// SPDX-License-Identifier: Apache-2.0
// How an engine waits when nothing moves, and finds stalls meanwhile.
#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <immintrin.h>
#include <linux/futex.h>
#include <new>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <utility>

#include "core/engine/engine.hpp"
#include "core/engine/list_waits.hpp"
#include "guest/assert.hpp"
#include "kernels/host/poll.hpp"

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
// When ranks outnumber cores, a rank that waits gives its core to another: a turn, about 1.5 us.
// Where two share a core and all ranks of a call wait for each other, it polls first: a rank that
// has just sent something for as long as the answer of one that has another core takes, a cache
// line or two; one whose turn has come for nothing for most of a turn, as the other has just found
// that it must wait for somebody else.
constexpr uint32_t kAnswerPolls = 6;
constexpr uint32_t kTurnPolls = 60;
constexpr uint32_t kTurnLookRounds = 24;        // turns between two reads of the clock
constexpr size_t kLanesWatched = 16;            // by a thread that sleeps, of those that it polls
constexpr auto kPumpSleep = microseconds(100);  // a pump has no wake-up, so it is polled
constexpr auto kStallAfter = milliseconds(1000);
// After the death of a peer: a call that waits for others that may have failed with it.
constexpr auto kMissingAfter = std::chrono::seconds(5);
// Likewise, until a connection to it that is not made yet will not be made any more.
constexpr auto kUnconnectedAfter = std::chrono::seconds(2);
// For a peer that has left, as for one whose connection broke: what core/stall finds out comes
// first.
constexpr auto kLeftAfter = std::chrono::seconds(4);
constexpr auto kLookEvery = milliseconds(50);  // interval between checks for stalls
constexpr auto kLookAfterDeath = milliseconds(1);
// rounds of a busy engine between two reads of the clock
constexpr uint32_t kLookRounds = 4096;

/// Whether all ranks wait for each other.
bool is_exchange(const Work& work) {
  return !is_rooted(static_cast<Collective>(work.call.collective));
}

}  // namespace

/// Waits until a lane of `execution` can proceed. False: stopped. A function of its own, so that
/// profiles distinguish waiting from work.
bool Engine::wait_for(Execution& execution) noexcept {
  polled_.clear();
  bool awaits_answer = false;
  try {
    for (WorkQueue& queue : execution.queues) {
      if (queue.current < queue.items.size()) {
        WorkQueue::Item& item = queue.items[queue.current];
        for (LaneRun& lane : item.lanes) {
          polled_.push_back(&lane);
        }
        awaits_answer = awaits_answer || is_exchange(item.work);
      }
    }
  } catch (const std::bad_alloc&) {
    polled_.clear();  // the caller polls
  }
  const bool polls_on = awaits_answer && execution.rank->ranks_per_core == 2;
  do {
    if (execution.rank->stop.load(std::memory_order_acquire)) {  // pairs with fail(), abort
      take_stop_reason(execution);
      return false;
    }
    if (polls_on && poll_for_answer()) {
      return true;
    }
    wait();
  } while (!polled_.empty() && !can_one_go_on());
  return true;
}

/// Whether one of the lanes that wait can go on.
bool Engine::can_one_go_on() const noexcept {
  return std::any_of(polled_.begin(), polled_.end(),
                     [](LaneRun* lane) { return lane->waits_at_fifo() && lane->can_go_on(); });
}

/// Before a turn of another rank, where two share a core.
bool Engine::poll_for_answer() const noexcept {
  const auto is_there = [this] { return can_one_go_on(); };
  return is_there() || poll(is_there, idle_rounds_ == 0 ? kAnswerPolls : kTurnPolls);
}

void Engine::wait() noexcept {
  ++idle_rounds_;
  if (!spins()) {
    idle_long_ = true;
  }
  if (!idle_long_) {
    if (!active_.empty() && active_.front()->rank->oversubscribed()) {
      give_turn();
      return;
    }
    const uint32_t spin_rounds = neighbours_.are_known() ? shared_spin_rounds_ : kSpinRounds;
    if (idle_rounds_ < spin_rounds && !has_spun_long()) {
      _mm_pause();
      return;
    }
    if (!neighbours_.are_known() || !neighbours_.are_there(Clock::now())) {
      yield();
      return;
    }
    idle_long_ = true;
  }
  const auto now = Clock::now();
  note_idle(now);
  if (now - looked_at_ > look_pause()) {
    looked_at_ = now;
    find_stalled();
  }
  sleep();
}

/// Who misses a message of a dead peer tells the others, so it looks soon.
Clock::duration Engine::look_pause() const noexcept {
  const bool has_lost = std::any_of(active_.begin(), active_.end(), [](const Execution* execution) {
    return execution->rank->has_lost_peers.load(std::memory_order_relaxed);
  });
  return has_lost ? kLookAfterDeath : kLookEvery;
}

bool Engine::has_spun_long() noexcept {
  if (idle_rounds_ % kSpinLookRounds != 0) {
    return false;
  }
  const auto now = Clock::now();
  if (idle_rounds_ == kSpinLookRounds) {
    spins_since_ = now;
  }
  return now - spins_since_ > kSpinFor;
}

void Engine::note_idle(Clock::time_point now) noexcept {
  if (idle_since_ == Clock::time_point{}) {
    idle_since_ = now;
  }
}

void Engine::yield() noexcept {
  const auto before = Clock::now();
  sched_yield();
  const auto after = Clock::now();
  note_idle(before);
  neighbours_.learn(before, after);
  idle_long_ = neighbours_.are_known() || after - idle_since_ >= kYieldFor;
}

/// When ranks outnumber cores: a rank that gets the core yields as well, so how long that takes
/// tells nothing of other threads.
void Engine::give_turn() noexcept {
  sched_yield();
  if (idle_rounds_ % kTurnLookRounds != 0) {
    return;
  }
  const auto now = Clock::now();
  note_idle(now);
  idle_long_ = now - idle_since_ >= kYieldFor;
}

/// False when all executions wait for kernels that need no pumps: spinning would help none of them.
bool Engine::spins() const noexcept {
  return !std::all_of(active_.begin(), active_.end(), [](const Execution* execution) {
    return execution->remote != nullptr && !execution->pumps;
  });
}

void Engine::end_idling() noexcept {
  if (idle_long_ && neighbours_.are_known()) {
    shared_spin_rounds_ =
        Clock::now() - idle_since_ < kShortSleep ? kSpinRounds : kSharedSpinRounds;
  }
  idle_rounds_ = 0;
  idle_long_ = false;
  idle_since_ = {};
}

/// Checks for stalls while the engine is busy: one execution may stall while others proceed.
void Engine::find_stalled_sometimes() noexcept {
  if (++busy_rounds_ % kLookRounds != 0 || active_.empty()) {
    return;
  }
  const auto now = Clock::now();
  if (now - looked_at_ > kLookEvery) {
    looked_at_ = now;
    find_stalled();
  }
}

void Engine::find_stalled() noexcept {
  for (Execution* const execution : active_) {
    PLEXUS_DCHECK(!execution->finished);
    if (execution->moved || execution->still_since == Clock::time_point{}) {
      execution->moved = false;
      execution->still_since = looked_at_;
      if (std::exchange(execution->stalled, false)) {
        execution->rank->on_moved();
      }
      continue;
    }
    try {
      look_for_missing(*execution);
      if (has_stood_for(*execution, kStallAfter)) {
        execution->stalled = true;
        execution->rank->on_stalled(describe_standstill(*execution));
      }
    } catch (const std::bad_alloc&) {  // NOLINT(bugprone-empty-catch): told at the next look
    }
  }
}

bool Engine::has_stood_for(const Execution& execution, Clock::duration time) const noexcept {
  return execution.still_since != Clock::time_point{} && looked_at_ - execution.still_since > time;
}

/// What a peer had sent before it died or left is used, so that a call fails only when it misses a
/// message. After a death also when it does not move for long: a rank that has seen its own call
/// fail may come no more.
void Engine::look_for_missing(Execution& execution) const {
  RankState& rank = *execution.rank;
  const bool has_lost = rank.has_lost_peers.load(std::memory_order_acquire);
  if (rank.stop.load(std::memory_order_acquire) ||
      !(has_lost || has_stood_for(execution, kLeftAfter))) {
    return;
  }
  const bool connects = !has_lost || !has_stood_for(execution, kUnconnectedAfter);
  const auto missing = find_missing(execution, rank.list_gone(), connects);
  if (has_lost && (missing.has_value() || has_stood_for(execution, kMissingAfter))) {
    rank.fail(rank.stop_reason());
  } else if (missing.has_value()) {
    rank.fail(describe_gone(*missing));
  }
}

void Engine::sleep() noexcept {
  const bool pumps = std::any_of(active_.begin(), active_.end(), [](const Execution* execution) {
    return !execution->connected || execution->pumps;
  });
  std::array<LaneRun*, kLanesWatched> lanes{};
  size_t count = 0;
  for (LaneRun* const lane : polled_) {
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

/// Until the peer of one of `lanes` moves.
void Engine::sleep_at(std::span<LaneRun* const> lanes) noexcept {
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

}  // namespace plexus
