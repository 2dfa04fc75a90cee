// SPDX-License-Identifier: Apache-2.0
#include "core/launch/device_run.hpp"

#include <algorithm>
#include <utility>

#include "core/launch/call_runner.hpp"
#include "guest/assert.hpp"

namespace plexus {

// ---- DeviceRun ----

DeviceRun::DeviceRun(CallRunner& runner) : runner_(&runner), rank_(runner.device()) {}

DeviceRun::~DeviceRun() {
  if (in_graph_ && plan_ != nullptr) {
    plan_->launches.fetch_sub(1, std::memory_order_relaxed);
  }
}

void DeviceRun::prepare(Plan& plan,
                        std::shared_ptr<LaunchRecord> record,
                        uint64_t* done,
                        bool in_graph) {
  Execution& described = plan.execution();
  PLEXUS_DCHECK(is_free() && execution_.finished && plan.on_device());
  free_.store(false, std::memory_order_relaxed);
  abandoned_.store(false, std::memory_order_relaxed);
  plan.launches.fetch_add(1, std::memory_order_relaxed);
  plan_ = &plan;
  record_ = std::move(record);
  done_ = done;
  queues_ = described.queues.size();
  in_graph_ = in_graph;
  calls_known_ = 0;
  calls_.clear();
  for (const WorkQueue& queue : described.queues) {
    for (const WorkQueue::Item& item : queue.items) {
      calls_.push_back(item.work.call);
    }
  }
  execution_.rank = runner_->context().plans.state;
  execution_.ends = described.ends;
  execution_.device_ends = described.device_ends;
  execution_.expected = described.expected;
  execution_.connected = true;
  execution_.pumps = described.pumps;
  execution_.watch = described.watch;
  // Replays of a graph are calls that the log does not have.
  execution_.calls_end = in_graph ? kAllCalls : described.calls_end;
  execution_.remote = this;
}

void DeviceRun::submit() {
  runner_->submit_run(execution_, [this] { in_graph_ ? finish_replays() : finish(); });
}

void DeviceRun::finish() noexcept {
  const int launches = plan_->launches.fetch_sub(1, std::memory_order_relaxed);
  PLEXUS_DCHECK(launches > 0, launches);
  record_.reset();
  free_.store(true, std::memory_order_release);
}

/// The graph may have been replayed meanwhile.
void DeviceRun::finish_replays() {
  replaying_.store(false);
  if (replays_begun_.load() != replays_served_ &&
      !execution_.rank->stop.load(std::memory_order_acquire)) {
    serve_replays();
    return;
  }
  runner_->order().captured().leave_engine(*this);
}

bool DeviceRun::all_done() const noexcept {
  for (size_t queue = 0; queue < queues_; ++queue) {
    // pairs with the kernel's release
    if (std::atomic_ref<uint64_t>(done_[queue]).load(std::memory_order_acquire) < kQueueLeft) {
      return false;
    }
  }
  return true;
}

Result<bool> DeviceRun::poll() noexcept {
  if (const Error* const fault = rank_->fault(); fault != nullptr) {
    return fault->clone();
  }
  bool ended = false;
  if (in_graph_) {
    const uint64_t replays = replays_ended_.load();
    const uint64_t begun = replays_begun_.load();
    PLEXUS_DCHECK(replays <= begun && replays_served_ <= replays, replays, begun, replays_served_);
    ended = replays == begun;
    replays_served_ = ended ? replays : replays_served_;
  } else {
    // Not earlier: until then the kernel uses memory that the owner of the run may free.
    ended = all_done() || abandoned_.load(std::memory_order_acquire);
  }
  if (rank_->failure() != nullptr && !execution_.rank->stop.load(std::memory_order_acquire)) {
    rank_->watch().wake();  // whose thread finds the words for it, some of them on the device
    return false;
  }
  return ended;
}

void DeviceRun::serve_replays() {
  if (!replaying_.exchange(true)) {
    submit();
  }
}

void DeviceRun::begin_replay(void* run) {
  auto& self = *static_cast<DeviceRun*>(run);
  self.replays_begun_.fetch_add(1);
  self.serve_replays();
}

void DeviceRun::end_replay(void* run) { static_cast<DeviceRun*>(run)->replays_ended_.fetch_add(1); }

uint64_t DeviceRun::take_begun() noexcept {
  const uint64_t begun = in_graph_ ? replays_begun_.load() : 1;
  PLEXUS_DCHECK(calls_known_ <= begun, calls_known_, begun);
  return begun - std::exchange(calls_known_, begun);
}

std::optional<Error> DeviceRun::describe(const DeviceFailure& failure) const {
  const auto call = std::find_if(calls_.begin(), calls_.end(), [&](const CallRecord& record) {
    return record.hash == failure.hash_expected;
  });
  if (call == calls_.end()) {
    return std::nullopt;
  }
  if (failure.fault == DeviceFault::kUnmapped) {
    return fail(Code::kSystemError,
                "rank {} received from rank {} an address that its device cannot read: set "
                "NCCL_P2P_DIRECT_DISABLE=1",
                runner_->context().plans.rank, failure.peer);
  }
  std::vector<CallRecord> theirs;  // as told on all connections from that peer
  for (const DeviceEnd* const end : execution_.device_ends) {
    if (end->key().sends || end->key().peer != failure.peer) {
      continue;
    }
    CallRecord records[kHeaders];
    const auto* const fifo = reinterpret_cast<const Fifo*>(end->view().fifo);
    if (rank_->runtime().copy(rank_->device(), records, fifo->calls, sizeof(records)).has_value()) {
      theirs.insert(theirs.end(), std::begin(records), std::end(records));
    }
  }
  return describe_mismatch({.rank = runner_->context().plans.rank,
                            .peer = failure.peer,
                            .call = *call,
                            .peers_calls = theirs,
                            .hash_arrived = failure.hash_arrived,
                            .size_expected = failure.size_expected,
                            .size_arrived = failure.size_arrived});
}

// ---- CapturedRuns ----

DeviceRun& CapturedRuns::add(CallRunner& runner) {
  const std::lock_guard lock(mutex_);
  auto run = std::make_unique<DeviceRun>(runner);
  DeviceRun* const added = run.get();
  runs_.emplace(added, std::move(run));
  return *added;
}

void* CapturedRuns::hold(DeviceRun& run, std::shared_ptr<LaunchRecord> record) {
  auto held = std::make_unique<Held>(
      Held{.runs = shared_from_this(), .run = &run, .record = std::move(record)});
  return held.release();
}

void CapturedRuns::end_graph(void* held) noexcept {
  const std::unique_ptr<const Held> owner(static_cast<const Held*>(held));
  CapturedRuns& runs = *owner->runs;
  const std::lock_guard lock(runs.mutex_);
  if (runs.runs_.count(owner->run) == 0) {
    return;  // the communicator has ended before
  }
  owner->run->graph_is_gone_ = true;
  if (!owner->run->replaying_.load()) {
    runs.erase(*owner->run);
  }
}

void CapturedRuns::leave_engine(DeviceRun& run) {
  const std::lock_guard lock(mutex_);
  if (run.graph_is_gone_) {
    erase(run);
  }
}

void CapturedRuns::erase(const DeviceRun& run) noexcept { runs_.erase(&run); }

void CapturedRuns::close() noexcept {
  const std::lock_guard lock(mutex_);
  runs_.clear();
}

std::optional<Error> CapturedRuns::describe(const DeviceFailure& failure) const {
  const std::lock_guard lock(mutex_);
  for (const auto& [key, run] : runs_) {
    auto error = run->describe(failure);
    if (error.has_value()) {
      return error;
    }
  }
  return std::nullopt;
}

size_t CapturedRuns::size() const noexcept {
  const std::lock_guard lock(mutex_);
  return runs_.size();
}

// ---- DeviceOrder ----

DeviceRun& DeviceOrder::start_run(CallRunner& runner,
                                  Plan& plan,
                                  std::shared_ptr<LaunchRecord> record,
                                  uint64_t* done,
                                  bool in_graph) {
  if (in_graph) {
    DeviceRun& run = captured_->add(runner);
    run.prepare(plan, std::move(record), done, true);
    return run;
  }
  const std::lock_guard lock(mutex_);
  // Launches of a communicator run one after the other, so the first one ends first.
  if (!runs_.empty() && runs_.front()->is_free()) {
    runs_.splice(runs_.end(), runs_, runs_.begin());
  } else {
    runs_.push_back(std::make_unique<DeviceRun>(runner));
  }
  runs_.back()->prepare(plan, std::move(record), done, false);
  return *runs_.back();
}

Error DeviceOrder::describe(const DeviceFailure& failure) const {
  {
    const std::lock_guard lock(mutex_);
    for (const auto& run : runs_) {
      auto error = run->describe(failure);
      if (error.has_value()) {
        return std::move(*error);
      }
    }
  }
  auto error = captured_->describe(failure);
  return error.has_value()
             ? std::move(*error)
             : fail(Code::kInternalError, "a kernel failed in call number {}", failure.sequence);
}

Result<void> DeviceOrder::come_after(const CallRunner& runner,
                                     DeviceStream stream,
                                     const Capture& capture) const {
  // Equal handles are no order: those of streams of threads are equal, and a new stream may have
  // the address of one that is gone.
  const DeviceRank& rank = *runner.device();
  DeviceRuntime& runtime = rank.runtime();
  const DeviceRank::Events& events = rank.events();
  if (capture.active && capture.id == capture_id_) {
    return runtime.wait(rank.device(), stream, events.in_graph.get());
  }
  if (capture.active) {
    return runner.context().orders_graphs
               ? runtime.wait_at_replay(rank.device(), stream, events.last.get())
               : ok();
  }
  return any_ ? runtime.wait(rank.device(), stream, events.last.get()) : ok();
}

Result<void> DeviceOrder::note(const CallRunner& runner,
                               DeviceStream stream,
                               const Capture& capture) {
  const DeviceRank& rank = *runner.device();
  DeviceRuntime& runtime = rank.runtime();
  const DeviceRank::Events& events = rank.events();
  if (capture.active) {
    if (runner.context().orders_graphs) {
      PLEXUS_TRY(runtime.record_at_replay(rank.device(), events.last.get(), stream));
    }
    PLEXUS_TRY(runtime.record(rank.device(), events.in_graph.get(), stream));
  } else {
    PLEXUS_TRY(runtime.record(rank.device(), events.last.get(), stream));
  }
  any_ = true;
  capture_id_ = capture.id;
  return ok();
}

}  // namespace plexus
