// SPDX-License-Identifier: Apache-2.0
#include "core/launch/device_launch.hpp"

#include <algorithm>
#include <bit>
#include <chrono>
#include <map>
#include <set>
#include <thread>
#include <utility>

#include "core/base/text.hpp"
#include "core/engine/list_waits.hpp"
#include "core/launch/call_runner.hpp"
#include "core/launch/device_run.hpp"
#include "guest/assert.hpp"

namespace plexus {
namespace {

constexpr auto kConnectPause = std::chrono::microseconds(50);
constexpr auto kStallAfter = std::chrono::seconds(1);
constexpr auto kStallEvery = std::chrono::milliseconds(500);

std::vector<DeviceStream> streams_of(std::span<const DeviceCalls> calls) {
  std::vector<DeviceStream> streams;
  for (const DeviceCalls& call : calls) {
    for (const Task& task : call.tasks) {
      if (std::find(streams.begin(), streams.end(), task.device_stream) == streams.end()) {
        streams.push_back(task.device_stream);
      }
    }
  }
  return streams;
}

/// Either all streams of a rank's calls are captured into one graph, or none is.
Result<Capture> capture_of(const DeviceCalls& calls) {
  DeviceRank& rank = *calls.runner->device();
  const std::vector<DeviceStream> streams = streams_of(std::span(&calls, 1));
  PLEXUS_TRY(first, rank.runtime().capture(rank.device(), streams.front()));
  for (const DeviceStream stream : std::span(streams).subspan(1)) {
    PLEXUS_TRY(other, rank.runtime().capture(rank.device(), stream));
    if (other.active != first.active || other.id != first.id) {
      return fail(Code::kInvalidUsage,
                  "the streams of a communicator's calls in a group are captured into different "
                  "graphs, or only some of them are: capture all of them into one graph");
    }
  }
  return first;
}

/// The calls that one kernel does: those of a device that are captured into the same graph, or not
/// at all.
using CallsByLaunch = std::map<std::pair<int, uint64_t>, std::vector<DeviceCalls>>;

Result<CallsByLaunch> by_launch(std::span<const DeviceCalls> calls) {
  CallsByLaunch launches;
  for (const DeviceCalls& call : calls) {
    PLEXUS_TRY(capture, capture_of(call));
    launches[{call.runner->device()->device(), capture.id}].push_back(call);
  }
  return launches;
}

/// Collects what one launch needs, then makes it.
class Launch {
 public:
  /// `graph`: the id of the one into which the calls are captured; 0: none.
  Launch(std::span<const DeviceCalls> calls, uint64_t graph)
      : calls_(calls),
        runtime_(&calls.front().runner->device()->runtime()),
        device_(calls.front().runner->device()->device()),
        streams_(streams_of(calls)),
        capture_{.active = graph != 0, .id = graph} {}

  /// All that may take memory or call the driver for more than an order.
  Result<void> prepare() {
    PLEXUS_TRY(build_tables());
    PLEXUS_TRY(choose_size());
    LaunchPool& pool = *calls_.front().runner->context().launches;
    const size_t size_bytes = launch_bytes(total_);
    PLEXUS_TRY(record, capture_.active ? pool.take_for_graph(*runtime_, device_, size_bytes)
                                       : pool.take(*runtime_, device_, size_bytes));
    record_ = std::move(record);
    return ok();
  }

  /// After it, kernels may wait for each other.
  Result<void> start() {
    fill();
    auto started = put_on_streams();
    if (started.has_error()) {
      for (DeviceRun* const run : runs_) {
        run->abandon();
      }
    }
    return started;
  }

 private:
  [[nodiscard]] DeviceStream stream() const { return streams_.front(); }
  [[nodiscard]] const DeviceRank::Events& events() const {
    return calls_.front().runner->device()->events();
  }

  Result<void> put_on_streams() {
    PLEXUS_TRY(map_for_peers());
    PLEXUS_TRY(join_streams());
    PLEXUS_TRY(launch());
    return leave_streams();
  }

  Result<void> build_tables() {
    for (const DeviceCalls& call : calls_) {
      private_.push_back(call.runner->spans_devices() && has_private_buffers(*call.plan));
      PLEXUS_TRY(plan, call.plan->device_plan(*call.runner->device(), private_.back()));
      plans_.push_back(plan);
      total_ += plan->size();
      threads_ = std::max(threads_, plan->threads());
    }
    return ok();
  }

  /// All blocks must be resident at once, beside those of other ranks that launch kernels on this
  /// device. When there is no room for all, sends and receives share blocks.
  Result<void> choose_size() {
    const LaunchContext& context = calls_.front().runner->context();
    const auto infos = context.infos;
    const PeerInfo& mine = infos[static_cast<size_t>(context.plans.rank)];
    const size_t fixed = total_.blocks - total_.turns;
    const size_t least = fixed + (total_.turns > 0 ? 1 : 0);
    if (least > mine.device_blocks) {
      return fail(Code::kInvalidUsage,
                  "cuda:{} holds {} blocks of the kernel at once and {} of this group would "
                  "take {}: set NCCL_MAX_CTAS to a lower number of channels, or use fewer ranks "
                  "per device",
                  device_, mine.device_blocks, counted(calls_.size(), "rank"), least);
    }
    const size_t on_device = sharers_of(infos, mine);
    const size_t share = mine.device_blocks * std::min(calls_.size(), on_device) / on_device;
    const size_t room = std::max(share, least);
    shares_blocks_ = total_.blocks > room && total_.turns > 0;
    block_count_ = shares_blocks_ ? room : total_.blocks;
    return ok();
  }

  void fill() {
    const DevicePlan::Places all = launch_places(record_->memory, total_);
    blocks_ = all.blocks;
    DevicePlan::Places next = all;
    std::vector<DeviceQueue*> in_turn;
    uint64_t* times = all.times;
    for (size_t i = 0; i < calls_.size(); ++i) {
      next.times = calls_[i].plan->execution().watch == nullptr ? nullptr : times;
      DeviceBlock* const end = plans_[i]->fill(next, shares_blocks_ ? &in_turn : nullptr);
      starts_.push_back(next);
      if (private_[i]) {
        close_private_buffers(i);
      }
      name_scalars(i);
      runs_.push_back(&calls_[i].runner->order().start_run(*calls_[i].runner, *calls_[i].plan,
                                                           record_, next.done, capture_.active));
      const DevicePlan::Size size = plans_[i]->size();
      next.blocks = end;
      next.queues += size.queues;
      next.works += size.works;
      next.done += size.queues;
      next.loans += size.loans;
      times += 2 * size.queues;
    }
    PLEXUS_DCHECK(
        next.queues == all.queues + total_.queues && next.works == all.works + total_.works,
        total_.queues, total_.works);
    PLEXUS_DCHECK(next.blocks <= blocks_ + block_count_, block_count_, total_.blocks);
    PLEXUS_DCHECK(shares_blocks_ || next.blocks == blocks_ + block_count_, block_count_);
    share_out(in_turn, std::span(next.blocks, blocks_ + block_count_));
  }

  /// That kernels of other devices cannot read.
  [[nodiscard]] bool has_private_buffers(const Plan& plan) const {
    return std::any_of(plan.items().begin(), plan.items().end(), [&](const auto& item) {
      const Work& work = item.item->work;
      return !runtime_->is_open_to_peers(device_, work.input.address) ||
             !runtime_->is_open_to_peers(device_, work.output.address);
    });
  }
  void close_private_buffers(size_t call) {
    for (const Plan::ItemTask& item : calls_[call].plan->items()) {
      plans_[call]->close_buffers(starts_[call], item.item->work);
    }
  }

  /// Multipliers that lie on the device (ncclScalarDevice): the kernel reads them.
  void name_scalars(size_t call) {
    for (const Plan::ItemTask& item : calls_[call].plan->items()) {
      const void* const scalar = calls_[call].tasks[item.task].scalar;
      if (scalar != nullptr) {
        DeviceWork& work = starts_[call].works[plans_[call]->place_of(item.item->work)];
        work.scalar = scalar;
        work.scalar_bytes = static_cast<uint8_t>(element_size(work.type));
      }
    }
  }

  /// Block i serves queues i, i + blocks, ...
  static void share_out(std::span<DeviceQueue* const> queues, std::span<DeviceBlock> blocks) {
    PLEXUS_DCHECK(queues.empty() || !blocks.empty(), queues.size());
    for (size_t i = queues.size(); i-- > 0;) {
      if (i + blocks.size() < queues.size()) {
        queues[i]->next = queues[i + blocks.size()];
      }
      if (i < blocks.size()) {
        blocks[i] = {.queue = *queues[i], .lane = 0, .in_turn = 1};
      }
    }
  }

  Result<void> map_for_peers() {
    for (size_t i = 0; i < calls_.size(); ++i) {
      PeerMappedMemory* const memory = calls_[i].runner->context().peer_mapped;
      if (memory == nullptr || plans_[i]->size().loans == 0) {
        continue;
      }
      for (const Plan::ItemTask& item : calls_[i].plan->items()) {
        PLEXUS_TRY(plans_[i]->map_for_peers(starts_[i],
                                            {.work = item.item->work,
                                             .input_bytes = item.input_bytes,
                                             .output_bytes = item.output_bytes,
                                             .in_graph = capture_.active},
                                            *memory));
      }
    }
    return ok();
  }

  /// Orders the launch after what is on the group's streams and after its communicators' last ones.
  Result<void> join_streams() {
    for (size_t i = 1; i < streams_.size(); ++i) {
      const DeviceEvent event = events().join.get();
      PLEXUS_TRY(runtime_->record(device_, event, streams_[i]));
      PLEXUS_TRY(runtime_->wait(device_, stream(), event));
    }
    for (const DeviceCalls& call : calls_) {
      PLEXUS_TRY(call.runner->order().come_after(*call.runner, stream(), capture_));
    }
    return ok();
  }

  Result<void> launch() {
    const bool replays = capture_.active && std::any_of(runs_.begin(), runs_.end(),
                                                        [](auto* run) { return run->has_pumps(); });
    for (size_t i = 0; i < calls_.size(); ++i) {
      PLEXUS_TRY(replays && runs_[i]->has_pumps()
                     ? runtime_->call_host(device_, stream(), DeviceRun::begin_replay, runs_[i])
                     : ok());
      if (const auto& watch = calls_[i].plan->execution().watch; watch != nullptr) {
        watch->on_launch(stream(), capture_.active ? nullptr : starts_[i].times);
      }
      PLEXUS_TRY(hand_over(i));
    }
    PLEXUS_TRY(runtime_->launch(device_, stream(), blocks_, static_cast<uint32_t>(block_count_),
                                threads_));
    for (DeviceRun* const run : runs_) {
      if (replays && run->has_pumps()) {
        PLEXUS_TRY(runtime_->call_host(device_, stream(), DeviceRun::end_replay, run));
      }
    }
    return ok();
  }

  /// To the async engine, before the launch: with CUDA_LAUNCH_BLOCKING=1 that returns when the
  /// kernel has ended, for which slots must move. A captured run belongs to its graph.
  Result<void> hand_over(size_t call) {
    if (!capture_.active) {
      runs_[call]->submit();
      return ok();
    }
    void* const held = calls_[call].runner->order().captured().hold(*runs_[call], record_);
    auto called = runtime_->call_after_graph(device_, stream(), CapturedRuns::end_graph, held);
    if (called.has_error()) {
      CapturedRuns::end_graph(held);
    }
    return called;
  }

  Result<void> leave_streams() {
    for (const DeviceCalls& call : calls_) {
      PLEXUS_TRY(call.runner->order().note(*call.runner, stream(), capture_));
    }
    for (size_t i = 1; i < streams_.size(); ++i) {
      const OwnedEvent& last = capture_.active ? events().in_graph : events().last;
      PLEXUS_TRY(runtime_->wait(device_, streams_[i], last.get()));
    }
    return ok();
  }

  std::span<const DeviceCalls> calls_;
  DeviceRuntime* runtime_;
  int device_;
  std::vector<DeviceStream> streams_;
  Capture capture_;
  std::vector<DevicePlan*> plans_;
  std::vector<bool> private_;  // by call: peers cannot use the buffers
  DevicePlan::Size total_;
  uint32_t threads_ = 0;        // of a block
  size_t block_count_ = 0;      // of the launch
  bool shares_blocks_ = false;  // some blocks serve several queues
  std::shared_ptr<LaunchRecord> record_;
  DeviceBlock* blocks_ = nullptr;
  std::vector<DevicePlan::Places> starts_;  // by call
  std::vector<DeviceRun*> runs_;            // by call
};

Result<bool> connect_some(Execution& execution) {
  if (execution.connected) {
    return true;
  }
  if (execution.rank->stop.load(std::memory_order_acquire)) {  // pairs with fail(), abort
    return execution.rank->stop_reason();
  }
  bool connected = true;
  for (ConnectionEnd* const end : execution.ends) {
    if (!end->connected()) {
      auto progress = end->progress_connect();
      if (progress.has_error()) {
        execution.rank->fail(progress.error());
        return std::move(progress).error();
      }
      connected = connected && progress.value();
    }
  }
  execution.connected = connected;
  execution.pumps = std::any_of(execution.ends.begin(), execution.ends.end(),
                                [](const ConnectionEnd* end) { return end->has_pump(); });
  return connected;
}

/// Tells of ranks that wait for connections for long: their peers may have made other calls.
class ConnectStalls {
 public:
  explicit ConnectStalls(std::span<const DeviceCalls> calls) : calls_(calls) {}
  ~ConnectStalls() {
    for (RankState* const rank : reported_) {
      rank->on_moved();
    }
  }
  ConnectStalls(const ConnectStalls&) = delete;
  ConnectStalls& operator=(const ConnectStalls&) = delete;

  void look() {
    const auto now = Clock::now();
    if (now < look_at_) {
      return;
    }
    look_at_ = now + kStallEvery;
    for (const DeviceCalls& call : calls_) {
      const Execution& execution = call.plan->execution();
      if (!execution.connected) {
        execution.rank->on_stalled(describe_standstill(execution));
        reported_.insert(execution.rank);
      }
    }
  }

 private:
  using Clock = std::chrono::steady_clock;
  std::span<const DeviceCalls> calls_;
  std::set<RankState*> reported_;
  Clock::time_point look_at_ = Clock::now() + kStallAfter;
};

/// All are prepared before the first one starts: its kernel may wait for those of the others.
Result<void> launch_all(DeviceRuntime& runtime, std::span<Launch> launches) {
  {
    const Allowing growing(&runtime, DriverCalls::kGrowing);
    for (Launch& launch : launches) {
      PLEXUS_TRY(launch.prepare());
    }
  }
  for (Launch& launch : launches) {
    PLEXUS_TRY(launch.start());
  }
  return ok();
}

/// Connects all ends, since a kernel needs all addresses before it starts. Host ranks of this
/// thread connect in the same loop: their peers' ends wait for them.
Result<void> connect_all(std::span<const DeviceCalls> calls, std::span<Execution* const> on_host) {
  ConnectStalls stalls(calls);
  for (;;) {
    bool connected = true;
    for (const DeviceCalls& call : calls) {
      PLEXUS_TRY(progress, connect_some(call.plan->execution()));
      connected = connected && progress;
    }
    for (Execution* const execution : on_host) {
      PLEXUS_TRY(progress, connect_some(*execution));
      connected = connected && progress;
    }
    if (connected) {
      return ok();
    }
    stalls.look();
    std::this_thread::sleep_for(kConnectPause);
  }
}

/// Registers the buffers of a call that is being captured, so that peers map them.
Result<void> map_for_graph(const DeviceCalls& call) {
  std::vector<PeerMappedMemory::GraphBuffer> buffers;
  std::vector<int> senders;
  for (const DeviceEnd* const end : call.plan->execution().device_ends) {
    if (end->view().reach != Reach::kMapped) {
      continue;
    }
    const int peer = end->key().peer;
    if (!end->key().sends) {
      senders.push_back(peer);
      continue;
    }
    for (const Plan::ItemTask& item : call.plan->items()) {
      const Work& work = item.item->work;
      if (std::max(item.input_bytes, item.output_bytes) >= work.borrow_bytes_min) {
        buffers.push_back({peer, work.input.address, item.input_bytes});
        buffers.push_back({peer, work.output.address, item.output_bytes});
      }
    }
  }
  return call.runner->context().peer_mapped->begin_graph(buffers, senders);
}

/// Exchanges with peers in other processes what they map: see peer_mapped_memory.hpp.
Result<void> agree_on_loans(std::span<const DeviceCalls> calls) {
  constexpr auto kPatience = std::chrono::seconds(1);  // for peers that capture at the same time
  std::vector<PeerMappedMemory*> graphs;
  for (const DeviceCalls& call : calls) {
    PeerMappedMemory* const mapped = call.runner->context().peer_mapped;
    if (mapped == nullptr) {
      continue;
    }
    PLEXUS_TRY(mapped->serve());
    const DeviceRank& rank = *call.runner->device();
    PLEXUS_TRY(capture, rank.runtime().capture(rank.device(), call.tasks.front().device_stream));
    if (capture.active && call.runner->context().registers_graphs) {
      PLEXUS_TRY(map_for_graph(call));
      graphs.push_back(mapped);
    }
  }
  const auto limit = std::chrono::steady_clock::now() + kPatience;
  for (bool agreed = graphs.empty(); !agreed && std::chrono::steady_clock::now() < limit;) {
    agreed = true;
    for (PeerMappedMemory* const mapped : graphs) {
      PLEXUS_TRY(one, mapped->graph_agreed());
      agreed = agreed && one;
    }
    if (!agreed) {
      std::this_thread::sleep_for(kConnectPause);
    }
  }
  for (PeerMappedMemory* const mapped : graphs) {
    mapped->end_graph();
  }
  return ok();
}

/// A launch that returns when its kernel has ended never does if that waits for what its thread
/// starts after it.
Result<void> check_launches_return(const DeviceRuntime& runtime,
                                   size_t launches,
                                   std::span<Execution* const> on_host) {
  if (runtime.waits_in_launch() && launches + (on_host.empty() ? 0 : 1) > 1) {
    return fail(
        Code::kInvalidUsage,
        "CUDA_LAUNCH_BLOCKING=1 makes the calls of this group wait for each other: a launch "
        "returns when its kernel has ended, and that waits for the group's {}; unset it, or "
        "have one thread for each device",
        on_host.empty() ? "kernels on other devices" : "ranks on the host");
  }
  return ok();
}

/// Peers wait for these calls already.
void fail_ranks(std::span<const DeviceCalls> calls, const Error& error) {
  for (const DeviceCalls& call : calls) {
    call.runner->context().plans.state->fail(error);
  }
}

}  // namespace

Result<void> run_on_devices(std::span<const DeviceCalls> calls,
                            std::span<Execution* const> on_host) {
  const auto grouped = by_launch(calls);
  if (grouped.has_error()) {
    fail_ranks(calls, grouped.error());
    return grouped.error().clone();
  }
  PLEXUS_TRY(check_launches_return(calls.front().runner->device()->runtime(),
                                   grouped.value().size(), on_host));
  std::vector<Launch> launches;
  launches.reserve(grouped.value().size());
  DeviceRuntime& runtime = calls.front().runner->device()->runtime();
  {
    const Allowing growing(&runtime, DriverCalls::kGrowing);
    PLEXUS_TRY(connect_all(calls, on_host));
    PLEXUS_TRY(agree_on_loans(calls));
  }
  for (const auto& [device_and_graph, some] : grouped.value()) {
    launches.emplace_back(some, device_and_graph.second);
  }
  auto launched = launch_all(runtime, launches);
  if (launched.has_error()) {
    fail_ranks(calls, launched.error());
  }
  return launched;
}

}  // namespace plexus
