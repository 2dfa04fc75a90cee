// SPDX-License-Identifier: Apache-2.0
#include "core/comm/communicator.hpp"

#include <algorithm>
#include <cstring>
#include <limits>
#include <map>
#include <set>

#include "core/base/hash.hpp"
#include "core/base/immortal.hpp"
#include "core/base/log.hpp"
#include "core/base/units.hpp"
#include "core/comm/agreement.hpp"
#include "core/comm/process.hpp"
#include "core/os/host.hpp"

namespace plexus {

Communicator::~Communicator() {
  magic.store(0, std::memory_order_relaxed);
  say_goodbye();
  connections_.reset();  // before the network they use
}

namespace {

/// Pairs in different datacenters, and the worst of what joins those.
void describe_xdc(const CommTopology& topology, plexus_tuner_link_t& xdc) {
  const DatacenterMap& map = topology.datacenters;
  std::vector<uint32_t> members(map.count());
  for (const int datacenter : topology.datacenter_of) {
    ++members[static_cast<size_t>(datacenter)];
  }
  for (size_t from = 0; from < map.count(); ++from) {
    for (size_t to = 0; to < from; ++to) {
      const DatacenterPath& path = map.path(from, to);
      xdc.count += members[from] * members[to];
      xdc.latency_ns = std::max(xdc.latency_ns, path.latency_ns.value_or(0));
      const uint64_t known = path.mbit_per_s.value_or(0);
      if (known > 0 && (xdc.bandwidth_mbit_per_s == 0 || known < xdc.bandwidth_mbit_per_s)) {
        xdc.bandwidth_mbit_per_s = known;
      }
    }
  }
}

constexpr uint64_t kMbitOfGb = 8000;

/// All zero when a rank computes on the host.
plexus_tuner_cuda_t describe_cuda(std::span<const PeerInfo> infos, const CommTopology& topology) {
  plexus_tuner_cuda_t cuda{};
  if (!std::all_of(infos.begin(), infos.end(), [](const auto& info) { return info.on_cuda(); })) {
    return cuda;
  }
  cuda.sm = std::numeric_limits<uint32_t>::max();
  cuda.blocks = std::numeric_limits<uint32_t>::max();
  cuda.memory_mbit_per_s = std::numeric_limits<uint64_t>::max();
  for (const PeerInfo& info : infos) {
    const uint32_t sharers = sharers_of(infos, info);
    cuda.sm = std::min(cuda.sm, static_cast<uint32_t>(std::max(info.device_sm, 1)));
    cuda.ranks_per_device = std::max(cuda.ranks_per_device, sharers);
    cuda.blocks = std::min(cuda.blocks, info.device_blocks / sharers);
    cuda.memory_mbit_per_s =
        std::min(cuda.memory_mbit_per_s, info.device_memory_gb_per_s * kMbitOfGb);
  }
  cuda.nvlink = topology.nvlink ? 1 : 0;
  return cuda;
}

plexus_tuner_comm_t describe_to_tuner(std::span<const PeerInfo> infos,
                                      const CommTopology& topology,
                                      uint64_t group,
                                      uint32_t slot_bytes) {
  std::map<uint64_t, uint32_t> hosts;
  std::map<std::pair<uint64_t, uint64_t>, uint32_t> processes;
  std::map<std::pair<uint64_t, uint64_t>, uint32_t> core_sets;  // bound ranks: a set each
  bool shares_host = true;
  bool shares_process = true;
  for (const PeerInfo& info : infos) {
    ++hosts[info.host_hash];
    ++processes[{info.host_hash, info.process_id}];
    core_sets[{info.host_hash, info.core_set}] = std::max(info.cores, 1U);
    shares_host = shares_host && info.shm_disable == 0;
    shares_process = shares_process && info.p2p_disable == 0;
  }
  const auto pairs = [](const auto& groups) {
    uint64_t count = 0;
    for (const auto& [key, members] : groups) {
      count += uint64_t{members} * (members - 1) / 2;
    }
    return count;
  };
  const uint64_t all = uint64_t{infos.size()} * (infos.size() - 1) / 2;
  const uint64_t in_process = shares_process ? pairs(processes) : 0;
  const uint64_t on_host = shares_host ? pairs(hosts) - in_process : 0;
  plexus_tuner_comm_t comm{};
  comm.struct_size = sizeof(comm);
  comm.nranks = static_cast<uint32_t>(infos.size());
  comm.nnodes = static_cast<uint32_t>(hosts.size());
  comm.ndatacenters = static_cast<uint32_t>(topology.datacenters.count());
  for (const auto& [host, members] : hosts) {
    comm.ranks_per_node_max = std::max(comm.ranks_per_node_max, members);
  }
  std::map<uint64_t, uint32_t> cores;
  for (const auto& [host_and_set, count] : core_sets) {
    cores[host_and_set.first] += count;
  }
  comm.cores_per_node_min = std::numeric_limits<uint32_t>::max();
  for (const auto& [host, count] : cores) {
    comm.cores_per_node_min = std::min(comm.cores_per_node_min, count);
  }
  comm.comm_id = group;
  comm.slot_bytes = slot_bytes;
  comm.links[PLEXUS_LINK_PROCESS].count = static_cast<uint32_t>(in_process);
  comm.links[PLEXUS_LINK_HOST].count = static_cast<uint32_t>(on_host);
  describe_xdc(topology, comm.links[PLEXUS_LINK_XDC]);
  comm.cuda = describe_cuda(infos, topology);
  if (comm.cuda.sm > 0) {
    const auto mbit_per_s = static_cast<uint64_t>(topology.near_gb_per_s * double{kMbitOfGb});
    comm.links[PLEXUS_LINK_PROCESS].bandwidth_mbit_per_s = mbit_per_s;
    comm.links[PLEXUS_LINK_HOST].bandwidth_mbit_per_s = mbit_per_s;
  }
  comm.links[PLEXUS_LINK_NET].count =
      static_cast<uint32_t>(all - in_process - on_host) - comm.links[PLEXUS_LINK_XDC].count;
  return comm;
}

/// The least that a rank was told, or else by what the slots are for.
uint32_t choose_slot_bytes(const std::vector<PeerInfo>& infos) {
  uint32_t told = 0;
  for (const PeerInfo& info : infos) {
    if (info.slot_bytes > 0) {
      told = told == 0 ? info.slot_bytes : std::min(told, info.slot_bytes);
    }
  }
  return told > 0 ? told : may_need_net(infos) ? kSlotBytesOfNetwork : kSlotBytesOfMemory;
}

struct FreeCommunicators {
  std::mutex mutex;
  std::vector<void*> memory;  // guarded by mutex
};

}  // namespace

void* Communicator::operator new(size_t size_bytes) {
  FreeCommunicators& free = Immortal<FreeCommunicators>::instance();
  const std::lock_guard lock(free.mutex);
  if (free.memory.empty()) {
    free.memory.reserve(free.memory.capacity() + 1);  // so that operator delete need not allocate
    return ::operator new (size_bytes, std::align_val_t{alignof(Communicator)});
  }
  void* const memory = free.memory.back();
  free.memory.pop_back();
  return memory;
}

void Communicator::operator delete(void* memory) noexcept {
  FreeCommunicators& free = Immortal<FreeCommunicators>::instance();
  const std::lock_guard lock(free.mutex);
  free.memory.push_back(memory);
}

Result<void> Communicator::open_profilers() {
  std::set<uint64_t> hosts;
  for (const PeerInfo& info : *setup_.infos) {
    hosts.insert(info.host_hash);
  }
  PLEXUS_TRY(profilers, ProfilerSet::open({.plugins = setup_.config.profiler_plugin,
                                           .folders = setup_.config.plugin_path},
                                          {.id = setup_.group,
                                           .name = comm_config_.comm_name,
                                           .nnodes = static_cast<int>(hosts.size()),
                                           .nranks = setup_.nranks,
                                           .rank = setup_.rank}));
  if (profilers != nullptr) {
    profile_ = std::make_unique<Profile>(std::move(profilers), setup_.rank);
  }
  return ok();
}

Result<void> Communicator::open_tuner(const plexus_tuner_comm_t& comm) {
  if (setup_.nranks == 1) {
    return ok();
  }
  PLEXUS_TRY(tuner, Tuner::open({.plugin = setup_.config.tuner_plugin,
                                 .folders = setup_.config.plugin_path,
                                 .net_plugins = setup_.config.net_plugin},
                                comm));
  tuner_ = std::move(tuner);
  return ok();
}

/// The heads of all hosts that meet in a network (kernels/algorithms/collnet_all_reduce.hpp).
static std::vector<int> list_members(const CommTopology& topology, int channel, int network) {
  const ChannelOrder& order =
      topology.orders[static_cast<size_t>(channel) % topology.orders.size()];
  std::vector<int> members;
  for (const int first : order.nodes) {
    members.push_back(order.ring[static_cast<size_t>(first) + static_cast<size_t>(network)]);
  }
  return members;
}

static std::optional<ConnectionSet::XdcLink> xdc_link(const CommTopology& topology,
                                                      int rank,
                                                      int peer) {
  const auto from = static_cast<size_t>(topology.datacenter_of[static_cast<size_t>(rank)]);
  const auto to = static_cast<size_t>(topology.datacenter_of[static_cast<size_t>(peer)]);
  if (from == to) {
    return std::nullopt;
  }
  const DatacenterPath& path = topology.datacenters.path(from, to);
  return ConnectionSet::XdcLink{.mbit_per_s = path.mbit_per_s.value_or(0),
                                .latency_ns = path.latency_ns.value_or(0)};
}

/// Fewest and most channels that all ranks can have.
static std::pair<uint32_t, uint32_t> bounds_of_channels(std::span<const PeerInfo> infos) {
  // Most programs have at most so many lanes, a block each.
  constexpr uint32_t kLanesPerChannel = 2;
  uint32_t least = 1;
  uint32_t most = 64;
  for (const PeerInfo& info : infos) {
    least = std::max(least, info.min_channels);
    most = std::min(most, info.max_channels);
    if (info.on_cuda()) {
      // One block of the device is for the messages of the group.
      const uint32_t blocks = (std::max(info.device_blocks, 1U) - 1) / sharers_of(infos, info);
      most = std::min(most, std::max(blocks / kLanesPerChannel, 1U));
    }
  }
  return {std::min(least, most), most};
}

void Communicator::make_plan_context(const plexus_tuner_comm_t& described, uint32_t slot_bytes) {
  const auto [channels_min, channels_max] = bounds_of_channels(*setup_.infos);
  plan_context_ = PlanContext{
      .state = this,
      .rank = setup_.rank,
      .nranks = setup_.nranks,
      .orders = topology_->orders,
      .costs = topology_->costs.get(),
      .connections = connections_.get(),
      .memory = &Process::instance().memory,
      .filter = &filter_,
      .tuner = tuner_.get(),
      .collnet = &collnet_.ability,
      .deterministic = setup_.config.deterministic,
      .shares_memory =
          described.links[PLEXUS_LINK_PROCESS].count + described.links[PLEXUS_LINK_HOST].count > 0,
      .channels_min = static_cast<int>(channels_min),
      .channels_max = static_cast<int>(channels_max),
      .slot_bytes = slot_bytes,
      .device = device_rank_.get()};
}

Result<void> Communicator::open_connections(uint32_t slot_bytes) {
  connections_ = std::make_unique<ConnectionSet>(
      ConnectionSet::Options{.rank = setup_.rank,
                             .infos = setup_.infos.get(),
                             .group = setup_.group,
                             .exchange = setup_.exchange.get(),
                             .rendezvous = &Process::instance().rendezvous,
                             .nets = setup_.nets.get(),
                             .slot_bytes = slot_bytes,
                             .runtime = Process::instance().devices()});
  if (topology_->datacenters.count() > 1) {
    connections_->use_xdc([topology = topology_, rank = setup_.rank](
                              int peer) { return xdc_link(*topology, rank, peer); },
                          std::chrono::milliseconds(setup_.config.xdc_timeout_ms));
  }
  PLEXUS_TRY(collnet, agree_on_collnet(setup_, *topology_, slot_bytes, &give_up));
  collnet_ = std::move(collnet);
  connections_->use_collnet(collnet_.context.get(),
                            [topology = topology_](int channel, int network) {
                              return list_members(*topology, channel, network);
                            });
  return ok();
}

void Communicator::open_peer_mapped_memory() {
  const auto& infos = *setup_.infos;
  const PeerInfo& mine = infos[static_cast<size_t>(setup_.rank)];
  std::vector<int> peers;
  for (int rank = 0; rank < setup_.nranks; ++rank) {
    const bool direct =
        mine.p2p_direct_disable == 0 && infos[static_cast<size_t>(rank)].p2p_direct_disable == 0;
    if (direct && connections_->transport_to(rank) == TransportKind::kP2p) {
      peers.push_back(rank);
    }
  }
  if (!peers.empty()) {
    peer_mapped_ = std::make_unique<PeerMappedMemory>(
        PeerMappedMemory::Options{.rank = setup_.rank,
                                  .exchange = setup_.exchange.get(),
                                  .runtime = &device_rank_->runtime(),
                                  .device = mine.device,
                                  .peers = std::move(peers)});
  }
}

Result<void> Communicator::start(CommSetup setup) {
  setup_ = std::move(setup);
  Process::instance().memory.note_process();
  PLEXUS_TRY(check_agreement(*setup_.infos));
  PLEXUS_TRY(filter, AlgorithmFilter::parse(setup_.config.algo, setup_.config.proto));
  filter_ = std::move(filter);
  PLEXUS_TRY(topology,
             agree_on_topology({.rank = setup_.rank,
                                .group = setup_.group,
                                .infos = *setup_.infos,
                                .config = &setup_.config,
                                .net = setup_.nets == nullptr ? nullptr : setup_.nets->first(),
                                .exchange = setup_.exchange.get(),
                                .give_up = &give_up,
                                .cache = &Process::instance().topologies}));
  topology_ = std::move(topology);
  const PeerInfo& mine = (*setup_.infos)[static_cast<size_t>(setup_.rank)];
  const uint32_t slot_bytes = choose_slot_bytes(*setup_.infos);
  uint32_t ranks_on_my_cores = 0;
  for (const PeerInfo& info : *setup_.infos) {
    ranks_on_my_cores += info.host_hash == mine.host_hash && info.core_set == mine.core_set ? 1 : 0;
  }
  const plexus_tuner_comm_t described =
      describe_to_tuner(*setup_.infos, *topology_, setup_.group, slot_bytes);
  PLEXUS_TRY(open_tuner(described));
  PLEXUS_TRY(open_profilers());
  oversubscribed = ranks_on_my_cores > mine.cores;
  if (mine.on_cuda()) {
    PLEXUS_TRY(Process::instance().async.start());
    PLEXUS_TRY(device_rank, DeviceRank::create(*Process::instance().devices(), mine.device));
    device_rank_ = std::move(device_rank);
  }
  PLEXUS_TRY(open_connections(slot_bytes));
  open_peer_mapped_memory();
  make_plan_context(described, slot_bytes);
  setup_.exchange->on_failure([this](const Error& error) { stop_with(error); });
  call_log_ = std::make_unique<CallLog>(setup_.nranks);
  Process::instance().stalls.add({.group = setup_.group,
                                  .rank = setup_.rank,
                                  .nranks = setup_.nranks,
                                  .exchange = setup_.exchange.get(),
                                  .calls = call_log_.get(),
                                  .thread = &calling_thread,
                                  .fail = [this](const Error& error) { fail(error); }});
  set_state(Code::kSuccess);
  const Exchange::Traffic traffic = setup_.exchange->traffic();
  PLEXUS_INFO(
      kInit,
      "comm {:#x} rank {} nranks {} host {} datacenters {} parts {} orders {} slots {} x {} KiB - "
      "Init COMPLETE in {:.3f} ms with {} messages of {} bytes",
      setup_.group, setup_.rank, setup_.nranks, mine.host, topology_->datacenters.count(),
      topology_->parts, topology_->orders.size(), kSlots, slot_bytes / 1024,
      std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - setup_.started)
          .count(),
      traffic.messages, traffic.bytes);
  return ok();
}

/// What was sent to other datacenters and may have to be sent again.
void Communicator::settle() {
  constexpr int kPatiences = 5;
  if (connections_ != nullptr && !stop.load(std::memory_order_acquire)) {
    connections_->settle(
        Deadline::after(kPatiences * std::chrono::milliseconds(setup_.config.xdc_timeout_ms)));
  }
}

void Communicator::say_goodbye() {
  if (setup_.exchange == nullptr) {
    return;
  }
  StallWatch& stalls = Process::instance().stalls;
  std::string record = stalls.leave_record(setup_.group, setup_.rank);
  stalls.remove(setup_.group, setup_.rank);
  setup_.exchange->leave(std::move(record));
}

uint64_t Communicator::next_shrink(const std::vector<int>& members) {
  const std::lock_guard lock(shrinks_mutex_);
  return ++shrinks_[members];
}

// ---- state ----

Error Communicator::stop_reason() const {
  const std::lock_guard lock(error_mutex_);
  return error_.has_value()
             ? error_->clone()
             : plexus::fail(Code::kInternalError, "rank {} was stopped without a reason", rank());
}

void Communicator::stop_with(const Error& reason) {
  {
    const std::lock_guard lock(error_mutex_);
    if (!error_.has_value()) {
      error_ = reason.clone();
    }
    set_state(error_->code());
  }
  stop.store(true, std::memory_order_release);  // pairs with the engine's load
  if (device_rank_ != nullptr) {
    device_rank_->stop();
  }
}

void Communicator::fail(const Error& error) {
  const bool first = !stop.load(std::memory_order_acquire);
  stop_with(error);
  if (first) {
    setup_.exchange->announce_failure(error);
  }
}

void Communicator::on_stalled(std::vector<Wait> waits) {
  Process::instance().stalls.on_stalled(setup_.group, setup_.rank, std::move(waits));
}

void Communicator::on_moved() { Process::instance().stalls.on_moved(setup_.group, setup_.rank); }

// ---- work ----

void Communicator::check_device() {
  // Until it is ready, another thread makes what is looked at here; pairs with start().
  if (state() != Code::kSuccess || device_rank_ == nullptr ||
      stop.load(std::memory_order_acquire)) {
    return;
  }
  if (const DeviceFailure* const failure = device_rank_->failure(); failure != nullptr) {
    fail(order_.describe(*failure));
  }
}

Result<Plan*> Communicator::find_plan(std::span<const Task> tasks) {
  const uint64_t dropped = plans_.dropped();
  auto found = plans_.find_or_build(*plan_context_, tasks);
  Plan* const plan = found.has_value() ? found.value() : nullptr;
  for (Plan** const last : {&last_plan_, &last_group_plan_}) {
    if (*last == plan || plans_.dropped() != dropped) {
      *last = nullptr;  // has other scalars now, or may be gone: also when the new one fails
    }
  }
  if (plan == nullptr) {
    return std::move(found).error();
  }
  newest_plan_ = plan;
  return plan;
}

void Communicator::prepare(Plan& plan, std::span<const Task> tasks) {
  const uint64_t sequence = call_log_->collectives();
  plan.prepare(tasks, *call_log_, *plan_context_->memory);
  if (profile_ != nullptr) {
    profile_->prepare(plan, tasks, sequence);
  }
  const Choice& choice = plan.choice();
  last_choice_ = {choice.algorithm->family, name(choice.protocol), choice.channels};
}

Result<void> Communicator::run_inline(std::span<const Task> tasks) {
  if (submitted_.load(std::memory_order_acquire) != 0) {
    wait_submitted();
  }
  PLEXUS_TRY(plan, find_plan(tasks));
  prepare(*plan, tasks);
  return run(*plan);
}

Result<void> Communicator::run(Plan& plan) {
  Execution* const execution = &plan.execution();
  engine_.run({&execution, 1});
  if (execution->error.has_value()) {
    return std::move(*execution->error);
  }
  return ok();
}

Result<void> Communicator::repeat_last_call(const void* send, void* recv) {
  last_plan_->prepare_again(send, recv, *call_log_, *plan_context_->memory);
  return run(*last_plan_);
}

Result<void> Communicator::repeat_last_group(std::span<const Task> tasks) {
  last_group_plan_->prepare(tasks, *call_log_, *plan_context_->memory);
  return run(*last_group_plan_);
}

/// Profilers want to see every call, a user's reduction may end, and a kernel needs a launch.
void Communicator::note_last(std::span<const CallShape> shapes, uint64_t group) noexcept {
  constexpr int kBuiltInOps = 5;
  const bool repeats = profile_ == nullptr && device_rank_ == nullptr &&
                       std::all_of(shapes.begin(), shapes.end(),
                                   [](const CallShape& shape) { return shape.op < kBuiltInOps; });
  if (group != 0) {
    last_group_plan_ = repeats ? newest_plan_ : nullptr;
    last_group_ = group;
  } else {
    last_plan_ = repeats && newest_plan_->is_one_call() ? newest_plan_ : nullptr;
    last_call_ = shapes.front();
  }
}

Submission::Part Communicator::start_submission(Plan& plan) {
  plan.busy = true;
  enter();  // the engine thread is inside until `finished` has returned
  submitted_.fetch_add(1, std::memory_order_relaxed);
  plan.execution().finished = false;
  return {.execution = &plan.execution(), .finished = [this, &plan] {
            plan.busy = false;
            submitted_.fetch_sub(1, std::memory_order_release);
            submitted_.notify_all();
            leave();
          }};
}

void Communicator::submit_run(Execution& execution, std::function<void()> finished) {
  enter();
  submitted_.fetch_add(1, std::memory_order_relaxed);
  execution.finished = false;
  Submission::Part part{.execution = &execution,
                        .finished = [this, finished = std::move(finished)] {
                          finished();
                          submitted_.fetch_sub(1, std::memory_order_release);
                          submitted_.notify_all();
                          leave();
                        }};
  Process::instance().async.submit({.parts = {std::move(part)}, .streams = {}});
}

void Communicator::wait_submitted() {
  for (int pending = submitted_.load(std::memory_order_acquire); pending != 0;
       pending = submitted_.load(std::memory_order_acquire)) {
    submitted_.wait(pending, std::memory_order_acquire);
  }
}

bool Communicator::wait_submitted_for(std::chrono::milliseconds time) {
  const auto limit = std::chrono::steady_clock::now() + time;
  while (submitted_.load(std::memory_order_acquire) != 0) {
    if (std::chrono::steady_clock::now() > limit) {
      return false;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

void Communicator::wait_left() {
  while (calls_.load(std::memory_order_acquire) != 0) {
    std::this_thread::yield();
  }
}

// ---- user-defined reductions ----

int Communicator::add_reduction(const UserReduction& reduction) {
  // Handles of different communicators differ, so that one used with the wrong one is recognised.
  constexpr int kFirst = 5;  // ncclNumOps
  constexpr uint64_t kRange = std::numeric_limits<int>::max() - kFirst;
  Fnv1a hash;
  hash.mix(setup_.group);
  hash.mix(static_cast<uint64_t>(++reductions_made_));
  uint64_t value = hash.value();
  int op = kFirst + static_cast<int>(value % kRange);
  while (reductions_.count(op) != 0) {
    op = kFirst + static_cast<int>(++value % kRange);
  }
  reductions_.emplace(op, reduction);
  return op;
}

bool Communicator::remove_reduction(int op) { return reductions_.erase(op) != 0; }

const Communicator::UserReduction* Communicator::find_reduction(int op) const {
  const auto at = reductions_.find(op);
  return at == reductions_.end() ? nullptr : &at->second;
}

// ---- live communicators ----

void LiveCommunicators::add(const Communicator* comm) {
  const std::lock_guard lock(mutex_);
  live_.emplace(comm, true);
}

bool LiveCommunicators::remove(const Communicator* comm) {
  const std::lock_guard lock(mutex_);
  return live_.erase(comm) != 0;
}

}  // namespace plexus
