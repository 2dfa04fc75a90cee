// SPDX-License-Identifier: Apache-2.0
#include "core/engine/engine.hpp"

#include <algorithm>
#include <new>
#include <sched.h>
#include <utility>

#include "guest/assert.hpp"
#include "kernels/host/poll.hpp"

namespace plexus {
namespace {

// The only remaining lane polls so often before a round counts as idle.
constexpr uint32_t kPolls = 64;
constexpr auto kBrokenPatience = std::chrono::seconds(4);
// When ranks outnumber cores, a rank that waits gives its core to another: a turn, about 1.5 us.
// Where two share a core and all ranks of a call wait for each other, it polls first: a rank that
// has just sent something for as long as the answer of one that has another core takes, a cache
// line or two; one whose turn has come for nothing for most of a turn, as the other has just found
// that it must wait for somebody else.
constexpr uint32_t kAnswerPolls = 6;
constexpr uint32_t kTurnPolls = 60;
constexpr size_t kQueuesPolled = 4;  // more queues are served better by wake-ups

/// Ids distinguish the engines of a process in Fifo ends; 0 means none.
uint32_t next_engine_id() {
  static std::atomic<uint32_t> last{0};
  return last.fetch_add(1, std::memory_order_relaxed) + 1;
}

void begin_calls(Work& work) {
  PLEXUS_DCHECK(work.program != nullptr);
  for (SendConnection* const send : work.sends) {
    if (send != nullptr) {
      send->begin_call(work.call);
    }
  }
  for (RecvConnection* const recv : work.recvs) {
    if (work.opens_output && recv != nullptr) {
      recv->open_output(work.output.address, work.output.size_bytes, work.output.place);
    }
  }
}

void expect_messages(const Execution& execution) {
  for (const ExpectedMessages& each : execution.expected) {
    each.end->expect(each.messages);
  }
}

bool drained(const Execution& execution) {
  return std::all_of(execution.ends.begin(), execution.ends.end(),
                     [](ConnectionEnd* end) { return end->drained(); });
}

/// The same, soon: the peers take what they have been sent by address when they get to it.
bool poll_drained(const Execution& execution) {
  const auto is_drained = [&] { return drained(execution); };
  return is_drained() || poll(is_drained, execution.rank->oversubscribed() ? 1 : kPolls);
}

/// Whether run_simple() applies: connected, few queues, and no pumps.
bool is_simple(const Execution& execution) {
  return execution.connected && execution.queues.size() <= kQueuesPolled && !execution.pumps &&
         execution.rank->unsettled.empty();
}

/// Moves the pumps that earlier calls left unsettled, because a current call may use the same
/// connections.
Result<bool> pump_unsettled(std::vector<ConnectionEnd*>& ends) {
  bool moved = false;
  for (ConnectionEnd* const end : ends) {
    PLEXUS_TRY(pumped, end->progress_pump());
    moved = moved || pumped;
  }
  std::erase_if(ends, [](const ConnectionEnd* end) { return end->settled() && !end->seeks(); });
  return moved;
}

/// Whether all connections of the item are connected.
bool is_connected(const WorkQueue::Item& item) {
  const auto stands = [](const auto* connection) {
    return connection == nullptr || connection->connected();
  };
  return std::all_of(item.work.sends.begin(), item.work.sends.end(), stands) &&
         std::all_of(item.work.recvs.begin(), item.work.recvs.end(), stands);
}

/// Whether all items of all queues have run.
bool has_run_all(const Execution& execution) {
  return std::all_of(execution.queues.begin(), execution.queues.end(), [](const WorkQueue& queue) {
    return queue.current == queue.items.size() && !queue.awaits_connections;
  });
}

/// The only remaining lane may poll longer before it reports that it waits.
void let_poll(const Execution& execution, size_t lanes_left, RunQueue& queue) {
  queue.set_polls(lanes_left == 1 && !execution.rank->oversubscribed() ? kPolls : 1);
}

void begin_run(Execution& execution) {
  PLEXUS_DCHECK(!execution.stalled);
  execution.finished = false;
  execution.moved = false;
  execution.still_since = {};
  execution.error.reset();
  if (execution.rank->input_check != nullptr) {
    execution.rank->input_check->look(execution);
  }
  const bool is_timed =
      execution.arrivals != nullptr && execution.remote == nullptr &&
      execution.arrivals->wants(execution.collectives_end, execution.has_collectives);
  execution.began = is_timed ? std::chrono::steady_clock::now() : decltype(execution.began){};
}

void end_run(Execution& execution) {
  PLEXUS_DCHECK(!execution.finished);
  if (execution.error.has_value()) {
    for (ConnectionEnd* const end : execution.ends) {
      end->revoke();
    }
  }
  if (std::exchange(execution.stalled, false)) {
    execution.rank->on_moved();
  }
  if (execution.watch != nullptr) {
    execution.watch->on_end();
  }
  if (execution.began != decltype(execution.began){} && !execution.error.has_value()) {
    execution.arrivals->note(execution.collectives_end, execution.began,
                             std::chrono::steady_clock::now());
  }
  execution.finished = true;
}

void tell_item_begins(const Execution& execution, const WorkQueue::Item& item) {
  if (execution.watch != nullptr) {
    execution.watch->on_item_begin(item);
  }
}

void end_item(const Execution& execution, WorkQueue& queue) {
  PLEXUS_DCHECK(queue.current < queue.items.size(), queue.current, queue.items.size());
  if (execution.watch != nullptr) {
    execution.watch->on_item_end(queue.items[queue.current]);
  }
  ++queue.current;
}

/// Whether all ranks wait for each other.
bool is_exchange(const Work& work) {
  return !is_rooted(static_cast<Collective>(work.call.collective));
}

/// Restarts the queue's current item; returns its number of lanes.
size_t restart_item(const Execution& execution, WorkQueue& queue) noexcept {
  if (queue.current == queue.items.size()) {
    return 0;
  }
  WorkQueue::Item& item = queue.items[queue.current];
  tell_item_begins(execution, item);
  begin_calls(item.work);
  for (LaneRun& lane : item.lanes) {
    lane.restart();
  }
  return item.lanes.size();
}

/// The user's call must not end without an error, so this waits for the little memory that it
/// needs.
[[gnu::cold]] void take_stop_reason(Execution& execution) noexcept {
  for (execution.error.reset(); !execution.error.has_value();) {
    try {
      execution.error = execution.rank->stop_reason();
    } catch (const std::bad_alloc&) {
      sched_yield();
    }
  }
}

[[gnu::cold]] void fail_simple(Execution& execution, LaneRun& lane) noexcept {
  try {
    execution.rank->fail(describe_failure(lane));
  } catch (const std::bad_alloc&) {
    execution.rank->fail_for_memory();
  }
  take_stop_reason(execution);
}

/// Whether one of the lanes that wait can go on.
bool can_one_go_on(std::span<LaneRun* const> polled) noexcept {
  return std::any_of(polled.begin(), polled.end(),
                     [](LaneRun* lane) { return lane->waits_at_fifo() && lane->can_go_on(); });
}

/// Before a turn of another rank, where two share a core.
bool poll_for_answer(std::span<LaneRun* const> polled, uint32_t idle_rounds) noexcept {
  const auto is_there = [polled] { return can_one_go_on(polled); };
  return is_there() || poll(is_there, idle_rounds == 0 ? kAnswerPolls : kTurnPolls);
}

void own_end_of(ConnectionEnd& end, uint32_t engine) noexcept {
  if (Fifo* const fifo = end.fifo_in_process(); fifo != nullptr) {
    FifoEnd& mine = end.key().sends ? fifo->sender : fifo->receiver;
    mine.engine.store(engine, std::memory_order_relaxed);
    mine.waiter.store(0, std::memory_order_relaxed);
  }
}

/// True when a lane of `execution` waits for a message of this receiving connection.
bool is_waited_for(std::span<LaneRun* const> polled,
                   const Execution& execution,
                   const ConnectionKey& key) noexcept {
  return std::any_of(polled.begin(), polled.end(), [&](const LaneRun* lane) {
    const WorkQueue& queue = *lane->owner->queue;
    return lane->owner->execution == &execution && lane->waits_to_recv() != nullptr &&
           lane->waits_to_recv()->peer() == key.peer &&
           index_of(queue.items[queue.current], lane->connection()) == key.index &&
           !lane->can_go_on();
  });
}

/// Its pump goes on when the execution has ended.
void keep_if_unsettled(ConnectionEnd& end, std::vector<ConnectionEnd*>& unsettled) {
  if ((!end.settled() || end.seeks()) &&
      std::find(unsettled.begin(), unsettled.end(), &end) == unsettled.end()) {
    unsettled.push_back(&end);
  }
}

/// Stores the lanes of the current items, none if there is no memory: then the caller polls. True:
/// in one of these items all ranks wait for each other.
bool list_lanes(Execution& execution, std::vector<LaneRun*>& lanes) noexcept {
  lanes.clear();
  bool awaits_answer = false;
  try {
    for (WorkQueue& queue : execution.queues) {
      if (queue.current < queue.items.size()) {
        WorkQueue::Item& item = queue.items[queue.current];
        for (LaneRun& lane : item.lanes) {
          lanes.push_back(&lane);
        }
        awaits_answer = awaits_answer || is_exchange(item.work);
      }
    }
  } catch (const std::bad_alloc&) {
    lanes.clear();
  }
  return awaits_answer;
}

}  // namespace

Engine::Engine() : queue_(next_engine_id()) {
  reserve(1);  // what run_simple() needs
}

void Engine::run(std::span<Execution* const> executions) {
  PLEXUS_DCHECK(!executions.empty());
  PLEXUS_DCHECK(active_.empty(), active_.size());
  if (executions.size() == 1 && is_simple(*executions.front())) {
    run_simple(*executions.front());
    return;
  }
  run_together(executions);
}

/// A function of its own, so that run_simple() does not pay for its registers.
void Engine::run_together(std::span<Execution* const> executions) {
  reserve(executions.size());
  for (Execution* const execution : executions) {
    add(*execution);
  }
  while (!empty()) {
    if (!progress()) {
      wait();
    }
  }
}

/// Runs a single execution without the run queue, which suits most inline calls. Polling its own
/// lanes needs no wake-ups, so no cache line is written that the peers would have to fetch.
void Engine::run_simple(Execution& execution) noexcept {
  begin_run(execution);
  active_.push_back(&execution);
  if (execution.watch != nullptr) {
    execution.watch->on_begin();
  }
  size_t lanes_left = 0;
  for (WorkQueue& queue : execution.queues) {
    queue.current = 0;
    lanes_left += restart_item(execution, queue);
  }
  RunQueue alone(0);
  let_poll(execution, lanes_left, alone);
  while (poll_queues(execution, alone)) {
  }
  PLEXUS_DCHECK(execution.error.has_value() || has_run_all(execution));
  end_run(execution);
  active_.clear();
  polled_.clear();
}

/// Advances the lanes that can proceed; waits when none can. False: all are done, or one failed.
bool Engine::poll_queues(Execution& execution, RunQueue& alone) noexcept {
  bool any_moved = false;
  size_t all_left = 0;
  for (WorkQueue& queue : execution.queues) {
    if (queue.current == queue.items.size()) {
      continue;
    }
    size_t lanes_left = 0;
    for (LaneRun& lane : queue.items[queue.current].lanes) {
      const Progress progress = lane.advance(alone);
      if (progress == Progress::kFailed) {
        fail_simple(execution, lane);
        return false;
      }
      lanes_left += progress == Progress::kDone ? 0 : 1;
      any_moved = any_moved || lane.moved();
    }
    if (lanes_left == 0) {
      end_item(execution, queue);
      lanes_left = restart_item(execution, queue);
    }
    all_left += lanes_left;
  }
  let_poll(execution, all_left, alone);
  if (any_moved) {
    execution.moved = true;
    idle_.moved();
  }
  if (all_left == 0 && poll_drained(execution)) {
    return false;
  }
  return any_moved || wait_for(execution);
}

/// Waits until a lane of `execution` can proceed. False: stopped. A function of its own, so that
/// profiles distinguish waiting from work.
bool Engine::wait_for(Execution& execution) noexcept {
  const bool polls_on = list_lanes(execution, polled_) && execution.rank->ranks_per_core == 2;
  do {
    if (execution.rank->stop.load(std::memory_order_acquire)) {  // pairs with fail(), abort
      take_stop_reason(execution);
      return false;
    }
    if (polls_on && poll_for_answer(polled_, idle_.rounds())) {
      return true;
    }
    wait();
    if (execution.error.has_value()) {  // at its deadline
      return false;
    }
  } while (!polled_.empty() && !can_one_go_on(polled_));
  return true;
}

void Engine::sleep() noexcept {
  stalls_.while_idle(active_, Clock::now());
  IdleWait::sleep(active_, polled_);
}

void Engine::add(Execution& execution) noexcept {
  begin_run(execution);
  execution.queues_left = execution.queues.size();
  PLEXUS_DCHECK(active_.size() < active_.capacity(), active_.size());  // see reserve()
  active_.push_back(&execution);
  if (execution.watch != nullptr) {
    execution.watch->on_begin();
  }
  try {
    begin(execution);
  } catch (const std::bad_alloc&) {
    fail_for_memory(execution);
  }
}

/// Not on a rank that has stopped, as by an earlier call of the stream: its peers may still be in
/// that call, and would take this one for its successor. The next round fails it.
void Engine::begin(Execution& execution) {
  if (execution.rank->stop.load(std::memory_order_acquire)) {  // pairs with fail(), abort
    return;
  }
  for (ConnectionEnd* const end : execution.ends) {
    own_end_of(*end, queue_.engine());
  }
  if (execution.remote == nullptr) {
    expect_messages(execution);
  }
  for (WorkQueue& queue : execution.queues) {
    queue.current = 0;
    begin_item(execution, queue);
  }
}

void Engine::begin_item(Execution& execution, WorkQueue& queue) {
  PLEXUS_DCHECK(queue.current <= queue.items.size(), queue.current, queue.items.size());
  if (queue.current == queue.items.size()) {
    PLEXUS_DCHECK(execution.queues_left > 0);
    --execution.queues_left;
    return;
  }
  WorkQueue::Item& item = queue.items[queue.current];
  // A call of a group must not wait for the connections of another call: its peers may make that
  // other call only after this one.
  queue.awaits_connections = !execution.connected && !is_connected(item);
  if (queue.awaits_connections) {
    return;
  }
  tell_item_begins(execution, item);
  begin_calls(item.work);
  item.lanes_left = item.lanes.size();
  queue.owner = {.execution = &execution, .queue = &queue};
  for (LaneRun& lane : item.lanes) {
    lane.restart();
    lane.owner = &queue.owner;
    queue_.add(&lane);
    queue_.push(&lane);
  }
}

void Engine::lane_done(LaneRun& lane) {
  Execution& execution = *lane.owner->execution;
  WorkQueue& queue = *lane.owner->queue;
  PLEXUS_DCHECK(execution.queues_left > 0 && !execution.finished, execution.queues_left);
  PLEXUS_DCHECK(queue.items[queue.current].lanes_left > 0, queue.current);
  if (--queue.items[queue.current].lanes_left == 0) {
    end_item(execution, queue);
    begin_item(execution, queue);
  }
}

void Engine::park(LaneRun& lane) {
  PLEXUS_DCHECK(!lane.owner->execution->finished);
  if (lane.waits_at_fifo() &&
      other_end(lane).engine.load(std::memory_order_relaxed) == queue_.engine()) {
    own_end(lane).waiter.store(lane.index + 1, std::memory_order_relaxed);
    if (!lane.can_go_on()) {
      return;  // its peer is driven by this thread, which wakes the lane
    }
    own_end(lane).waiter.store(0, std::memory_order_relaxed);
  }
  polled_.push_back(&lane);
}

bool Engine::progress_lanes() {
  bool moved = false;
  for (size_t i = 0; i < polled_.size();) {
    LaneRun* const lane = polled_[i];
    if (lane->can_go_on()) {
      polled_[i] = polled_.back();
      polled_.pop_back();
      queue_.push(lane);
    } else {
      ++i;
    }
  }
  while (!queue_.empty()) {
    LaneRun& lane = *queue_.pop();
    Execution& execution = *lane.owner->execution;
    if (execution.finished || execution.error.has_value()) {
      continue;
    }
    try {
      if (const Progress progress = advance(lane); progress == Progress::kYielded) {
        return true;  // pumps and other executions get their turn
      } else if (progress == Progress::kDone) {
        moved = true;
      } else {
        moved = moved || lane.moved();
      }
    } catch (const std::bad_alloc&) {
      fail_for_memory(execution);
    }
  }
  return moved;
}

Progress Engine::advance(LaneRun& lane) {
  Execution& execution = *lane.owner->execution;
  const Progress progress = lane.advance(queue_);
  switch (progress) {
    case Progress::kDone:
      lane_done(lane);
      execution.moved = true;
      break;
    case Progress::kYielded:
      execution.moved = true;
      queue_.push(&lane);
      break;
    case Progress::kPending:
      execution.moved = execution.moved || lane.moved();
      park(lane);
      break;
    case Progress::kFailed:
      execution.rank->fail(describe_failure(lane));
      fail(execution, execution.rank->stop_reason());
      break;
  }
  return progress;
}

bool Engine::progress_execution(Execution& execution) {
  RankState& rank = *execution.rank;
  const bool is_late = execution.error.has_value();            // at its deadline
  if (is_late || rank.stop.load(std::memory_order_acquire)) {  // pairs with fail() and abort
    fail(execution, is_late ? std::move(*execution.error) : rank.stop_reason());
    return true;
  }
  bool moved = false;
  auto connects = execution.connected ? Result<bool>(false) : progress_connect(execution);
  auto pumped = progress_pumps(execution);
  auto settled = pump_unsettled(rank.unsettled);
  for (auto* const progress : {&connects, &pumped, &settled}) {
    if (progress->has_error()) {
      rank.fail(progress->error());
      fail(execution, rank.stop_reason());
      return true;
    }
    moved = moved || progress->value();
  }
  if (execution.connected && execution.queues_left == 0 && drained(execution)) {
    finish(execution);
    return true;
  }
  return moved;
}

/// Continues to connect, and begins items that have become ready. True when something moved.
Result<bool> Engine::progress_connect(Execution& execution) {
  bool all = true;
  bool any = false;
  for (ConnectionEnd* const end : execution.ends) {
    if (end->connected()) {
      continue;
    }
    PLEXUS_TRY(connects, end->progress_connect());
    if (connects) {
      own_end_of(*end, queue_.engine());
      execution.pumps = execution.pumps || end->has_pump();
    }
    all = all && connects;
    any = any || connects;
  }
  if (all) {
    execution.connected = true;
    execution.pumps = std::any_of(execution.ends.begin(), execution.ends.end(),
                                  [](const ConnectionEnd* end) { return end->has_pump(); });
  }
  for (WorkQueue& queue : execution.queues) {
    if ((any || all) && queue.awaits_connections && is_connected(queue.items[queue.current])) {
      begin_item(execution, queue);
      any = true;
    }
  }
  return any || all;
}

/// True when something moved. Also fails for a broken connection that the execution waits for.
Result<bool> Engine::progress_pumps(Execution& execution) {
  bool moved = false;
  for (ConnectionEnd* const end : execution.ends) {
    if (!end->has_pump() || !end->connected()) {
      continue;
    }
    PLEXUS_TRY(progress, end->progress_pump());
    moved = moved || progress;
    // It is not known where a kernel waits; after a stall it is assumed to wait for this
    // connection. A peer that has left or died broke it: what the control plane and core/stall say
    // of that comes first.
    if (const Error* const broken = end->broken();
        broken != nullptr && execution.stalled &&
        stalls_.has_stood_for(execution, kBrokenPatience) &&
        (execution.remote != nullptr ||
         (end->key().sends ? !end->drained() : is_waited_for(polled_, execution, end->key())))) {
      return broken->clone();
    }
  }
  return moved;
}

/// A kernel ends when it is told to stop. Nothing that it uses may be released before.
bool Engine::progress_remote(Execution& execution) {
  RankState& rank = *execution.rank;
  auto ended = execution.remote->poll();
  if (ended.has_error()) {
    rank.fail(ended.error());
    fail(execution, rank.stop_reason());
    return true;
  }
  if (rank.stop.load(std::memory_order_acquire)) {  // pairs with the release in fail() and abort
    if (ended.value()) {
      fail(execution, rank.stop_reason());
    }
    return ended.value();
  }
  for (uint64_t begun = execution.remote->take_begun(); begun > 0; --begun) {
    expect_messages(execution);
  }
  auto moved = progress_pumps(execution);
  auto settled = pump_unsettled(rank.unsettled);
  for (const auto* const progress : {&moved, &settled}) {
    if (progress->has_error()) {
      rank.fail(progress->error());
      return true;
    }
  }
  if (ended.value() && drained(execution)) {
    finish(execution);
    return true;
  }
  return moved.value() || settled.value();
}

bool Engine::progress() noexcept {
  bool moved = progress_lanes();
  for (size_t i = 0; i < active_.size();) {
    Execution& execution = *active_[i];
    const bool is_remote = execution.remote != nullptr;
    try {
      // One whose lane has failed above is finished already.
      if (execution.finished ||
          (is_remote ? progress_remote(execution) : progress_execution(execution))) {
        execution.moved = true;
        moved = true;
      }
    } catch (const std::bad_alloc&) {
      fail_for_memory(execution);
    }
    if (execution.finished) {
      active_[i] = active_.back();
      active_.pop_back();
    } else {
      ++i;
    }
  }
  if (active_.empty()) {
    queue_.clear();
    polled_.clear();
  }
  if (moved) {
    idle_.moved();
    stalls_.while_busy(active_);
  }
  return moved;
}

void Engine::finish(Execution& execution) {
  PLEXUS_DCHECK(execution.error.has_value() || execution.remote != nullptr ||
                    (execution.queues_left == 0 && has_run_all(execution)),
                execution.queues_left);
  for (ConnectionEnd* const end : execution.ends) {
    own_end_of(*end, 0);
    keep_if_unsettled(*end, execution.rank->unsettled);
    // Lanes that rely on wake-ups from this end are polled from now on.
    if (Fifo* const fifo = end->fifo_in_process(); fifo != nullptr) {
      queue_.notify(end->key().sends ? fifo->receiver : fifo->sender);
    }
  }
  end_run(execution);
}

void Engine::fail(Execution& execution, Error error) {
  execution.error = std::move(error);
  std::erase_if(polled_, [&](LaneRun* lane) { return lane->owner->execution == &execution; });
  finish(execution);
}

/// When there is not even memory for the error, the next round comes here again: the rank has
/// stopped.
void Engine::fail_for_memory(Execution& execution) noexcept {
  execution.rank->fail_for_memory();
  try {
    fail(execution, execution.rank->stop_reason());
  } catch (const std::bad_alloc&) {  // NOLINT(bugprone-empty-catch): see above
  }
}

}  // namespace plexus
