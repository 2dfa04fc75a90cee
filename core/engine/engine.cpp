// SPDX-License-Identifier: Apache-2.0
#include "core/engine/engine.hpp"

#include <algorithm>
#include <chrono>
#include <immintrin.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace plexus {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr uint32_t kSpinRounds = 2000;       // some 20 us: longer than a peer's pass over a slot
constexpr uint32_t kPolls = 64;              // of an only lane before a round counts as idle
constexpr size_t kQueuesPolled = 4;          // more are better served by wake-ups
constexpr uint32_t kClockRounds = 64;        // look at the clock once in so many idle rounds
constexpr auto kYieldFor = milliseconds(2);  // then sleep: a futex wake costs about 10 us
constexpr auto kSleep =
    microseconds(1000);  // bound of one sleep: abort is seen, lost wakes are made good
constexpr auto kPumpSleep = microseconds(100);  // nobody wakes a pump: look again soon
constexpr auto kReportAfter = milliseconds(1000);

/// Ids tell the engines of a process apart in Fifo ends; 0 means none.
uint32_t next_engine_id() {
  static std::atomic<uint32_t> last{0};
  return last.fetch_add(1, std::memory_order_relaxed) + 1;
}

/// The words in shared memory by which the two ends of a connection wake each other.
FifoEnd& own_end(LaneRun& lane) {
  return lane.waits_to_recv() != nullptr ? lane.waits_to_recv()->fifo().receiver
                                         : lane.waits_to_send()->fifo().sender;
}
FifoEnd& other_end(LaneRun& lane) {
  return lane.waits_to_recv() != nullptr ? lane.waits_to_recv()->fifo().sender
                                         : lane.waits_to_send()->fifo().receiver;
}

void begin_calls(Work& work) {
  for (SendConnection* const send : work.sends) {
    if (send != nullptr) {
      send->begin_call(work.call);
    }
  }
}

bool drained(const Execution& execution) {
  return std::all_of(execution.ends.begin(), execution.ends.end(),
                     [](ConnectionEnd* end) { return end->drained(); });
}

/// One rank over memory with few lanes.
bool is_simple(const Execution& execution) {
  return execution.connected && execution.queues.size() <= kQueuesPolled && !execution.pumps &&
         execution.rank->unsettled.empty();
}

/// What calls that are over left behind must not wait for one that uses the same connections.
Result<bool> pump_unsettled(std::vector<ConnectionEnd*>& ends) {
  bool moved = false;
  for (ConnectionEnd* const end : ends) {
    PLEXUS_TRY(pumped, end->progress_pump());
    moved = moved || pumped;
  }
  std::erase_if(ends, [](const ConnectionEnd* end) { return end->settled(); });
  return moved;
}

/// True: all ends are connected.
Result<bool> progress_connect(Execution& execution) {
  bool connected = true;
  for (ConnectionEnd* const end : execution.ends) {
    if (!end->connected()) {
      PLEXUS_TRY(progress, end->progress_connect());
      connected = connected && progress;
    }
  }
  return connected;
}

/// The only lane that is left may look longer before it says that it waits.
void let_poll(const Execution& execution, size_t lanes_left, RunQueue& queue) {
  queue.set_polls(lanes_left == 1 && !execution.rank->oversubscribed ? kPolls : 1);
}

bool waits_at_fifo(const LaneRun& lane) {
  return lane.waits_to_recv() != nullptr || lane.waits_to_send() != nullptr;
}

}  // namespace

Engine::Engine() : queue_(next_engine_id()) {}

void Engine::run(std::span<Execution* const> executions) noexcept {
  if (executions.size() == 1 && is_simple(*executions.front())) {
    run_simple(*executions.front());
    return;
  }
  for (Execution* const execution : executions) {
    add(*execution);
  }
  while (!empty()) {
    if (!progress()) {
      wait();
    }
  }
}

/// The same without the general machinery, as most inline calls are. Polling its own lanes needs no
/// wake-ups, so that no line is written that the peers would have to fetch.
void Engine::run_simple(Execution& execution) noexcept {
  execution.finished = false;
  execution.reported = false;
  execution.error.reset();
  active_.push_back(&execution);
  if (execution.watch != nullptr) {
    execution.watch->on_begin();
  }
  size_t lanes_left = 0;
  for (WorkQueue& queue : execution.queues) {
    queue.current = 0;
    lanes_left += restart_item(queue);
  }
  RunQueue alone(0);
  let_poll(execution, lanes_left, alone);
  while (poll_queues(execution, alone)) {
  }
  if (execution.watch != nullptr) {
    execution.watch->on_end();
  }
  execution.finished = true;
  active_.clear();
  polled_.clear();
}

/// How many lanes it has.
size_t Engine::restart_item(WorkQueue& queue) noexcept {
  if (queue.current == queue.items.size()) {
    return 0;
  }
  WorkQueue::Item& item = queue.items[queue.current];
  begin_calls(item.work);
  for (LaneRun& lane : item.lanes) {
    lane.restart();
  }
  return item.lanes.size();
}

/// Advances what can go on, and waits when nothing can. False: all is done, or failed.
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
        execution.error = describe_failure(lane);
        execution.rank->fail(*execution.error);
        return false;
      }
      lanes_left += progress == Progress::kDone ? 0 : 1;
      any_moved = any_moved || lane.moved();
    }
    if (lanes_left == 0) {
      ++queue.current;
      lanes_left = restart_item(queue);
    }
    all_left += lanes_left;
  }
  let_poll(execution, all_left, alone);
  if (any_moved) {
    moved();
  }
  if (all_left == 0 && drained(execution)) {
    return false;
  }
  return any_moved || wait_for(execution);
}

/// Until a lane of `execution` may go on. False: told to stop. Out of line, so that profiles tell
/// waiting from work.
bool Engine::wait_for(Execution& execution) noexcept {
  polled_.clear();
  for (WorkQueue& queue : execution.queues) {
    if (queue.current < queue.items.size()) {
      for (LaneRun& lane : queue.items[queue.current].lanes) {
        polled_.push_back(&lane);
      }
    }
  }
  do {
    if (execution.rank->stop.load(std::memory_order_acquire)) {  // pairs with fail(), abort
      execution.error = execution.rank->stop_reason();
      return false;
    }
    wait();
  } while (!polled_.empty() && std::none_of(polled_.begin(), polled_.end(), [](LaneRun* lane) {
    return waits_at_fifo(*lane) && lane->can_go_on();
  }));
  return true;
}

void Engine::add(Execution& execution) noexcept {
  execution.finished = false;
  execution.reported = false;
  execution.error.reset();
  execution.queues_left = execution.queues.size();
  active_.push_back(&execution);
  if (execution.watch != nullptr) {
    execution.watch->on_begin();
  }
  if (execution.connected) {
    begin(execution);
  }
}

void Engine::claim_ends(Execution& execution, uint32_t engine) noexcept {
  for (ConnectionEnd* const end : execution.ends) {
    if (end->connected() && end->in_one_process()) {
      FifoEnd& mine = end->key().sends ? end->send.fifo().sender : end->recv.fifo().receiver;
      mine.engine.store(engine, std::memory_order_relaxed);
      mine.waiter.store(0, std::memory_order_relaxed);
    }
  }
}

void Engine::begin(Execution& execution) noexcept {
  claim_ends(execution, queue_.engine());
  for (const ExpectedMessages& each : execution.expected) {
    each.end->expect(each.messages);
  }
  for (WorkQueue& queue : execution.queues) {
    queue.current = 0;
    begin_item(execution, queue);
  }
}

void Engine::begin_item(Execution& execution, WorkQueue& queue) noexcept {
  if (queue.current == queue.items.size()) {
    --execution.queues_left;
    return;
  }
  WorkQueue::Item& item = queue.items[queue.current];
  begin_calls(item.work);
  item.lanes_left = item.lanes.size();
  for (LaneRun& lane : item.lanes) {
    lane.restart();
    lane.owner = &execution;
    lane.owner_queue = &queue;
    queue_.add(&lane);
    queue_.push(&lane);
  }
}

void Engine::lane_done(LaneRun& lane) noexcept {
  auto& execution = *static_cast<Execution*>(lane.owner);
  auto& queue = *static_cast<WorkQueue*>(lane.owner_queue);
  if (--queue.items[queue.current].lanes_left == 0) {
    ++queue.current;
    begin_item(execution, queue);
  }
}

void Engine::park(LaneRun& lane) noexcept {
  if (waits_at_fifo(lane) &&
      other_end(lane).engine.load(std::memory_order_relaxed) == queue_.engine()) {
    own_end(lane).waiter.store(lane.index + 1, std::memory_order_relaxed);
    if (!lane.can_go_on()) {
      return;  // its peer is driven by this thread too and will wake it
    }
    own_end(lane).waiter.store(0, std::memory_order_relaxed);
  }
  polled_.push_back(&lane);
}

bool Engine::progress_lanes() noexcept {
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
    auto& execution = *static_cast<Execution*>(lane.owner);
    if (execution.finished || execution.error.has_value()) {
      continue;
    }
    switch (lane.advance(queue_)) {
      case Progress::kDone:
        lane_done(lane);
        moved = true;
        break;
      case Progress::kYielded:
        queue_.push(&lane);
        return true;  // pumps and other executions get their turn
      case Progress::kPending:
        moved = moved || lane.moved();
        park(lane);
        break;
      case Progress::kFailed:
        execution.rank->fail(describe_failure(lane));
        fail(execution, execution.rank->stop_reason());
        break;
    }
  }
  return moved;
}

bool Engine::is_waited_for(const ConnectionEnd& end) const noexcept {
  return std::any_of(polled_.begin(), polled_.end(), [&](const LaneRun* lane) {
    return lane->waits_to_recv() == &end.recv && !lane->can_go_on();
  });
}

bool Engine::progress_execution(Execution& execution) noexcept {
  RankState& rank = *execution.rank;
  if (rank.stop.load(std::memory_order_acquire)) {  // pairs with the release in fail() and abort
    fail(execution, rank.stop_reason());
    return true;
  }
  auto progress = execution.connected ? progress_pumps(execution) : progress_connect(execution);
  if (progress.has_error()) {
    rank.fail(progress.error());
    fail(execution, std::move(progress).error());
    return true;
  }
  bool moved = execution.connected && progress.value();
  if (!rank.unsettled.empty()) {
    auto settled = pump_unsettled(rank.unsettled);
    if (settled.has_error()) {
      rank.fail(settled.error());
      fail(execution, std::move(settled).error());
      return true;
    }
    moved = moved || settled.value();
  }
  if (!execution.connected && progress.value()) {
    execution.connected = true;
    execution.pumps = std::any_of(execution.ends.begin(), execution.ends.end(),
                                  [](const ConnectionEnd* end) { return end->has_pump(); });
    begin(execution);
    return true;
  }
  if (execution.connected && execution.queues_left == 0 && drained(execution)) {
    finish(execution);
    return true;
  }
  return moved;
}

/// True when something moved. An Error also for a broken connection that the execution waits for.
Result<bool> Engine::progress_pumps(Execution& execution) noexcept {
  bool moved = false;
  for (ConnectionEnd* const end : execution.ends) {
    if (!end->has_pump()) {
      continue;
    }
    PLEXUS_TRY(progress, end->progress_pump());
    moved = moved || progress;
    // Nobody knows where a kernel waits: it is taken to wait here when nothing moves for long.
    if (const Error* const broken = end->broken();
        broken != nullptr &&
        (execution.remote != nullptr ? execution.reported : is_waited_for(*end))) {
      return broken->clone();
    }
  }
  return moved;
}

/// A kernel ends when it is told to stop, and must have ended before anything it uses may go.
bool Engine::progress_remote(Execution& execution) noexcept {
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
    moved = (is_remote ? progress_remote(execution) : progress_execution(execution)) || moved;
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
    this->moved();
  }
  return moved;
}

void Engine::finish(Execution& execution) noexcept {
  claim_ends(execution, 0);
  for (ConnectionEnd* const end : execution.ends) {
    std::vector<ConnectionEnd*>& unsettled = execution.rank->unsettled;
    if (!end->settled() && std::find(unsettled.begin(), unsettled.end(), end) == unsettled.end()) {
      unsettled.push_back(end);
    }
    // Lanes that count on being woken by this end are polled from now on.
    if (end->connected() && end->in_one_process()) {
      queue_.notify(end->key().sends ? end->send.fifo().receiver : end->recv.fifo().sender);
    }
  }
  if (execution.watch != nullptr) {
    execution.watch->on_end();
  }
  execution.finished = true;
}

void Engine::fail(Execution& execution, Error error) noexcept {
  execution.error = std::move(error);
  std::erase_if(polled_, [&](LaneRun* lane) { return lane->owner == &execution; });
  finish(execution);
}

void Engine::wait() noexcept {
  ++idle_rounds_;
  if (!spins()) {
    idle_long_ = true;
  }
  if (!idle_long_) {
    const bool gives_way = !active_.empty() && active_.front()->rank->oversubscribed;
    if (idle_rounds_ < kSpinRounds && !gives_way) {
      _mm_pause();
      return;
    }
    if (idle_rounds_ % kClockRounds != 0) {
      sched_yield();
      return;
    }
  }
  const auto now = Clock::now();
  if (idle_since_ == Clock::time_point{}) {
    idle_since_ = now;
  }
  if (!idle_long_ && now - idle_since_ < kYieldFor) {
    sched_yield();
    return;
  }
  idle_long_ = true;
  if (now - idle_since_ > kReportAfter) {
    report_long_waits();
  }
  sleep();
}

/// Who waits for kernels over memory alone is in nobody's way when it sleeps.
bool Engine::spins() const noexcept {
  return !std::all_of(active_.begin(), active_.end(), [](const Execution* execution) {
    return execution->remote != nullptr && !execution->pumps;
  });
}

void Engine::moved() noexcept {
  idle_rounds_ = 0;
  idle_long_ = false;
  idle_since_ = {};
}

void Engine::report_long_waits() noexcept {
  for (Execution* const execution : active_) {
    if (execution->reported || !execution->connected) {
      continue;
    }
    execution->reported = true;
    if (execution->remote != nullptr) {
      execution->rank->report_waiting(execution->remote->call());
    }
    for (WorkQueue& queue : execution->queues) {
      if (queue.current < queue.items.size()) {
        execution->rank->report_waiting(queue.items[queue.current].work.call);
        break;
      }
    }
  }
}

void Engine::sleep() noexcept {
  const bool pumps = std::any_of(active_.begin(), active_.end(), [](const Execution* execution) {
    return !execution->connected || execution->pumps;
  });
  const auto lane = std::find_if(polled_.begin(), polled_.end(),
                                 [](LaneRun* candidate) { return waits_at_fifo(*candidate); });
  if (pumps || lane == polled_.end()) {
    const timespec time{0, std::chrono::nanoseconds(kPumpSleep).count()};
    nanosleep(&time, nullptr);
    return;
  }
  std::atomic<uint32_t>& sleeping = own_end(**lane).sleeping;
  sleeping.store(1, std::memory_order_seq_cst);
  if (!(*lane)->can_go_on()) {
    const timespec time{0, std::chrono::nanoseconds(kSleep).count()};
    syscall(SYS_futex, &sleeping, FUTEX_WAIT, 1, &time, nullptr, 0);
  }
  sleeping.store(0, std::memory_order_relaxed);
}

}  // namespace plexus
