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
// For the ranks' answers to who is late, once a deadline is over.
constexpr auto kCulpritAfter = milliseconds(2000);
constexpr auto kLookEvery = milliseconds(50);  // interval between checks for stalls
constexpr auto kLookSoon = milliseconds(1);
// rounds of a busy engine between two reads of the clock
constexpr uint32_t kLookRounds = 4096;

/// Who misses a message of a dead peer tells the others, so it looks soon; as who has a deadline.
Clock::duration look_pause(std::span<Execution* const> active) noexcept {
  const bool is_urgent = std::any_of(active.begin(), active.end(), [](const Execution* execution) {
    return execution->rank->has_lost_peers.load(std::memory_order_relaxed) ||
           execution->deadline.count() != 0;
  });
  return is_urgent ? kLookSoon : kLookEvery;
}

/// Nothing of the calls has left this rank or come to it, and nothing will: what was posted to a
/// plugin may be filled at any time.
bool has_not_begun(const Execution& execution) {
  const bool has_posted =
      std::any_of(execution.ends.begin(), execution.ends.end(),
                  [](const ConnectionEnd* end) { return end->connected() && end->has_pump(); });
  return !has_posted && execution.remote == nullptr &&
         std::all_of(execution.queues.begin(), execution.queues.end(), [](const WorkQueue& queue) {
           return queue.current == 0 && !queue.items.empty() &&
                  (queue.awaits_connections ||
                   std::none_of(queue.items.front().lanes.begin(), queue.items.front().lanes.end(),
                                [](const LaneRun& lane) { return lane.has_begun(); }));
         });
}

/// Its calls count as not made.
void take_back(const Execution& execution) {
  for (const ExpectedMessages& each : execution.expected) {
    each.end->expect(-each.messages);
  }
  for (const WorkQueue& queue : execution.queues) {
    for (const WorkQueue::Item& item : queue.items) {
      if (!item.work.program->peers.empty()) {
        execution.rank->taken_back.push_back(item.work.call);
      }
    }
  }
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
      if (execution->deadline.count() != 0 && has_stood_for(*execution, execution->deadline)) {
        end_at_deadline(*execution);
        continue;
      }
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

/// The ranks are asked only now, since one that was late before may have come.
void StallLook::end_at_deadline(Execution& execution) const {
  RankState& rank = *execution.rank;
  const auto waits = list_waits(execution);
  if (waits.empty() || execution.error.has_value() || rank.stop.load(std::memory_order_acquire)) {
    return;
  }
  if (rank.has_lost_peers.load(std::memory_order_acquire)) {
    rank.fail(rank.stop_reason());
    return;
  }
  execution.stalled = true;
  const auto culprit = rank.find_culprit == nullptr
                           ? std::optional(std::string())
                           : rank.find_culprit(describe_standstill(execution));
  if (!culprit.has_value() && !has_stood_for(execution, execution.deadline + kCulpritAfter)) {
    return;
  }
  const bool is_over = has_not_begun(execution) && !execution.is_submitted;
  Error error =
      describe_deadline(waits, execution.deadline, culprit.value_or(std::string()), is_over);
  if (is_over) {
    take_back(execution);
    execution.error = std::move(error);
  } else {
    rank.fail(error);
  }
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
