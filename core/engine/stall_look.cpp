// SPDX-License-Identifier: Apache-2.0
#include "core/engine/stall_look.hpp"

#include <algorithm>
#include <chrono>
#include <new>
#include <utility>

#include "core/engine/engine.hpp"
#include "core/engine/list_waits.hpp"
#include "guest/assert.hpp"

namespace plexus {
namespace {

using std::chrono::milliseconds;

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

/// Who misses a message of a dead peer tells the others, so it looks soon.
Clock::duration look_pause(std::span<Execution* const> active) noexcept {
  const bool has_lost = std::any_of(active.begin(), active.end(), [](const Execution* execution) {
    return execution->rank->has_lost_peers.load(std::memory_order_relaxed);
  });
  return has_lost ? kLookAfterDeath : kLookEvery;
}

}  // namespace

void StallLook::while_busy(std::span<Execution* const> active) noexcept {
  if (++busy_rounds_ % kLookRounds != 0 || active.empty()) {
    return;
  }
  const auto now = Clock::now();
  if (now - looked_at_ > kLookEvery) {
    looked_at_ = now;
    find_stalled(active);
  }
}

void StallLook::while_idle(std::span<Execution* const> active, Clock::time_point now) noexcept {
  if (now - looked_at_ > look_pause(active)) {
    looked_at_ = now;
    find_stalled(active);
  }
}

void StallLook::find_stalled(std::span<Execution* const> active) noexcept {
  for (Execution* const execution : active) {
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

bool StallLook::has_stood_for(const Execution& execution, Clock::duration time) const noexcept {
  return execution.still_since != Clock::time_point{} && looked_at_ - execution.still_since > time;
}

/// What a peer had sent before it died or left is used, so that a call fails only when it misses a
/// message. After a death also when it does not move for long: a rank that has seen its own call
/// fail may come no more.
void StallLook::look_for_missing(Execution& execution) const {
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

}  // namespace plexus
