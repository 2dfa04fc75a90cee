// SPDX-License-Identifier: Apache-2.0
#include "core/comm/communicator.hpp"

#include <exception>
#include <set>

#include "core/base/log.hpp"
#include "core/base/memory.hpp"
#include "core/base/text.hpp"
#include "core/comm/one_sided.hpp"
#include "core/comm/process.hpp"
#include "core/comm/watched.hpp"
#include "core/os/asymmetric_fence.hpp"
#include "core/setup/tuner_facts.hpp"
#include "core/transport/connections.hpp"
#include "guest/assert.hpp"

namespace plexus {
namespace {

constexpr auto kReasonWait = std::chrono::milliseconds(200);

/// For what comes at once, except from a plugin's function that does not return.
template <class Condition>
void wait_until(const Condition& condition) {
  constexpr int kYields = 1000;
  for (int i = 0; !condition(); ++i) {
    if (i < kYields) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
}

}  // namespace

Communicator::Communicator(Process& process, CommConfig config)
    : process_(process),
      number_(process.communicators.next_number()),
      comm_config_(std::move(config)),
      skips_checks_(comm_config_.virtual_device < 0 && process.check() == nullptr),
      registered_memory_(&process.memory) {
  calling_thread.set_maker(comm_config_.maker);
}

Communicator::~Communicator() {
  PLEXUS_DCHECK(magic.load(std::memory_order_relaxed) == live_magic(), number_);  // ends once
  PLEXUS_DCHECK(!is_visited(), number_, visits);
  PLEXUS_DCHECK(!initializer.joinable() && !finalizer.joinable(), number_);
  magic.store(0, std::memory_order_relaxed);
  leave_device();
  announce_departure(Departure::kDestroyed);
  connections_.reset();  // before the network they use
}

std::unique_ptr<Communicator> Communicator::make(Process& process, CommConfig config) {
  return std::unique_ptr<Communicator>(new (process) Communicator(process, std::move(config)));
}

void* Communicator::operator new(size_t /*size_bytes*/, Process& process) {
  return process.communicators.take_memory();
}

void Communicator::operator delete(void* memory, Process& process) noexcept {
  process.communicators.give_back(memory);
}

void Communicator::operator delete(Communicator* comm, std::destroying_delete_t /*tag*/) noexcept {
  Process& process = comm->process_;
  comm->~Communicator();
  process.communicators.give_back(comm);
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
                                           .rank = setup_.rank},
                                          process_.profiler_masks));
  if (profilers != nullptr) {
    profile_ = std::make_unique<Profile>(std::move(profilers), setup_.rank);
  }
  return ok();
}

Result<void> Communicator::open_tuner() {
  if (setup_.nranks == 1) {
    return ok();
  }
  PLEXUS_TRY(tuner, Tuner::open({.plugin = setup_.config.tuner_plugin,
                                 .folders = setup_.config.plugin_path,
                                 .net_plugins = setup_.config.net_plugin},
                                setup_.tuner_facts));
  tuner_ = std::move(tuner);
  return ok();
}

/// Ranks that reduce one shard in the network, one per host (kernels/algorithms/
/// collnet_all_reduce.hpp).
static std::vector<int> list_members(const CommTopology& topology, int channel, int network) {
  const ChannelOrder& order =
      topology.orders[static_cast<size_t>(channel) % topology.orders.size()];
  std::vector<int> members;
  for (const int first : order.nodes) {
    PLEXUS_DCHECK(static_cast<size_t>(first) + static_cast<size_t>(network) < order.ring.size(),
                  first, network, order.ring.size());
    members.push_back(order.ring[static_cast<size_t>(first) + static_cast<size_t>(network)]);
  }
  return members;
}

static std::optional<XdcLink> xdc_link(const CommTopology& topology, int rank, int peer) {
  const auto from = static_cast<size_t>(topology.datacenter_of[static_cast<size_t>(rank)]);
  const auto to = static_cast<size_t>(topology.datacenter_of[static_cast<size_t>(peer)]);
  if (from == to) {
    return std::nullopt;
  }
  const DatacenterPath& path = topology.datacenters.path(from, to);
  return XdcLink{.mbit_per_s = path.mbit_per_s.value_or(0),
                 .latency_ns = path.latency_ns.value_or(0),
                 .datacenter = static_cast<uint32_t>(to)};
}

void Communicator::open_link_facts() {
  const CommTopology& topology = *setup_.topology;
  if (topology.datacenters.count() > 1) {
    link_facts_ = std::make_unique<LinkFacts>(LinkFacts::Options{
        .exchange = setup_.exchange.get(),
        .calls = call_log_.get(),
        .datacenter =
            static_cast<uint32_t>(topology.datacenter_of[static_cast<size_t>(setup_.rank)]),
        .datacenters = static_cast<uint32_t>(topology.datacenters.count()),
        .gives_up = [this] { return stop.load(std::memory_order_acquire) || has_survived(); }});
  }
}

/// The next call is the first one after a change that all ranks have agreed on.
Result<bool> Communicator::change_links() {
  const uint64_t call = call_log_->collectives();
  PLEXUS_TRY(shares, link_facts_->admit(call));
  if (!shares.has_value()) {
    return false;
  }
  const uint64_t before = setup_.tuner_facts.links[PLEXUS_LINK_XDC].bandwidth_mbit_per_s;
  describe_xdc_links(*setup_.topology, *shares, setup_.tuner_facts);
  const uint64_t now = setup_.tuner_facts.links[PLEXUS_LINK_XDC].bandwidth_mbit_per_s;
  PLEXUS_INFO(kTuning,
              "comm {:#x} rank {}: from collective {} on, {}; the slowest counts as {} Mbit/s "
              "(before: {})",
              setup_.group, setup_.rank, call,
              shares->empty()
                  ? "no link between datacenters is counted as partly lost any more"
                  : counted(shares->size(), "link") + " between datacenters counted as partly lost",
              now, before);
  if (tuner_ != nullptr && now != before) {
    tuner_->change_links(setup_.tuner_facts);
  }
  return now != before;
}

namespace {

/// Whether some ranks do.
bool share_memory(const plexus_tuner_comm_t& facts) {
  return facts.links[PLEXUS_LINK_PROCESS].count + facts.links[PLEXUS_LINK_HOST].count > 0;
}

/// Whether all ranks are in one process and on one device.
bool share_device(const plexus_tuner_comm_t& facts) {
  uint64_t pairs = 0;
  for (const plexus_tuner_link_t& link : facts.links) {
    pairs += link.count;
  }
  return pairs > 0 && facts.links[PLEXUS_LINK_PROCESS].count == pairs &&
         facts.cuda.ranks_per_device >= facts.nranks;
}

}  // namespace

void Communicator::make_runner() {
  runner_.emplace(
      LaunchContext{.plans = {.state = this,
                              .rank = setup_.rank,
                              .nranks = setup_.nranks,
                              .orders = setup_.topology->orders,
                              .costs = setup_.topology->costs.get(),
                              .connections = connections_.get(),
                              .filter = &setup_.filter,
                              .tuner = tuner_.get(),
                              .collnet = &setup_.collnet.ability,
                              .recorded = setup_.programs->algorithms(),
                              .deterministic = setup_.config.deterministic,
                              .shares_memory = share_memory(setup_.tuner_facts),
                              .shares_device = share_device(setup_.tuner_facts),
                              .channels_min = setup_.channels_min,
                              .channels_max = setup_.channels_max,
                              .blocks = setup_.blocks,
                              .net_channels = setup_.net_channels,
                              .slot_bytes = setup_.slot_bytes,
                              .copy_methods = &setup_.copy_methods,
                              .device = device_rank_.get()},
                    .memory = &process_.memory,
                    .infos = *setup_.infos,
                    .log = call_log_.get(),
                    .profile = profile_.get(),
                    .async = &process_.async,
                    .launches = &process_.launches,
                    .peer_mapped = peer_mapped_.get(),
                    .registers_graphs = setup_.config.graph_register,
                    .orders_graphs = setup_.config.graph_mixing,
                    .changes_at = link_facts_ == nullptr ? nullptr : &link_facts_->due(),
                    .change = [this] { return change_links(); }});
}

void Communicator::open_connections() {
  TransportContext context{
      .rank = setup_.rank,
      .infos = setup_.infos.get(),
      .group = setup_.group,
      .exchange = setup_.exchange.get(),
      .rendezvous = &process_.rendezvous,
      .nets = setup_.nets.get(),
      .registered = setup_.config.local_register ? &registered_memory_ : nullptr,
      .slot_bytes = setup_.slot_bytes,
      .attach = setup_.copy_methods.attach,
      .runtime = process_.devices(),
      .xdc_patience = std::chrono::milliseconds(setup_.config.xdc_timeout_ms),
      .xdc_retry = std::chrono::milliseconds(setup_.config.xdc_retry_ms),
      .on_xdc_share = [this](uint32_t datacenter,
                             uint32_t share) { link_facts_->report(datacenter, share); },
      .link_counts = &link_counts,
      .collnet = setup_.collnet.context.get(),
      .collnet_members = [topology = setup_.topology](
                             int channel,
                             int network) { return list_members(*topology, channel, network); }};
  if (setup_.topology->datacenters.count() > 1) {
    context.xdc_link = [topology = setup_.topology, rank = setup_.rank](int peer) {
      return xdc_link(*topology, rank, peer);
    };
  }
  connections_ = std::make_unique<ConnectionSet>(std::move(context));
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
                                  .watch = &process_.device_watch,
                                  .peers = std::move(peers)});
  }
}

/// Memory of ranks that are reached through memory is mapped; messages go to all others.
Result<void> Communicator::open_one_sided() {
  const auto& infos = *setup_.infos;
  const Config& config = setup_.config;  // which wins
  const int64_t contexts =
      config.num_rma_ctx >= 0 ? config.num_rma_ctx : int64_t{comm_config_.rma_contexts};
  if (setup_.mine().on_cuda() || contexts == 0) {
    return ok();
  }
  std::vector<uint64_t> processes;
  for (int rank = 0; rank < setup_.nranks; ++rank) {
    const bool maps = rank == setup_.rank ||
                      connections_->transport_to(rank) == TransportKind::kDirect ||
                      connections_->transport_to(rank) == TransportKind::kShm;
    processes.push_back(maps ? infos[static_cast<size_t>(rank)].process_id : 0);
  }
  PLEXUS_TRY(opened,
             OneSided::open({.state = this,
                             .rank = setup_.rank,
                             .nranks = setup_.nranks,
                             .contexts = static_cast<uint32_t>(contexts),
                             .signals = static_cast<uint32_t>(comm_config_.rma_signals),
                             .is_eager = config.rma_eager_init >= 0 ? config.rma_eager_init != 0
                                                                    : comm_config_.rma_eager,
                             .exchange = setup_.exchange.get(),
                             .memory = &process_.memory,
                             .processes = std::move(processes),
                             .own_process = setup_.mine().process_id}));
  one_sided_ = std::move(opened);
  return ok();
}

Result<void> Communicator::start_device(int device) {
  DeviceRuntime& runtime = *process_.devices();
  PLEXUS_TRY(process_.async.start());
  PLEXUS_TRY(process_.device_watch.start(runtime));
  PLEXUS_TRY(device_rank, DeviceRank::create(runtime, device, process_.device_watch));
  const size_t launches = launch_bytes_in_flight(static_cast<size_t>(setup_.blocks));
  PLEXUS_TRY(process_.launches.reserve(runtime, device, launches));
  launch_bytes_ = launches;
  device_rank_ = std::move(device_rank);
  return ok();
}

void Communicator::leave_device() noexcept {
  if (device_rank_ == nullptr) {
    return;
  }
  process_.device_watch.remove(*this);
  process_.launches.release(device_rank_->device(), std::exchange(launch_bytes_, 0));
}

Result<void> Communicator::start(CommSetup setup) {
  PLEXUS_DCHECK(!runner_.has_value() && setup_.exchange == nullptr, number_);  // called once
  setup_ = std::move(setup);
  PLEXUS_DCHECK(setup_.rank >= 0 && setup_.rank < setup_.nranks, setup_.rank, setup_.nranks);
  PLEXUS_DCHECK(setup_.infos->size() == static_cast<size_t>(setup_.nranks), setup_.nranks);
  PLEXUS_DCHECK(!setup_.topology->orders.empty());
  process_.memory.note_process();
  PLEXUS_TRY(open_tuner());
  PLEXUS_TRY(open_profilers());
  ranks_per_core = setup_.ranks_per_core;
  const PeerInfo& mine = setup_.mine();
  if (mine.on_cuda()) {
    PLEXUS_TRY(start_device(mine.device));
  } else {
    host_pointers_.ask(process_.devices());
  }
  open_connections();
  open_peer_mapped_memory();
  call_log_ = std::make_unique<CallLog>(setup_.nranks);
  open_link_facts();
  PLEXUS_TRY(open_one_sided());
  make_runner();
  user_reductions_ = UserReductions(setup_.group, setup_.nranks);
  if (setup_.config.local_register) {
    registrations_ = Registrations(peer_mapped_.get(), &registered_memory_);
  }
  setup_.exchange->on_failure([this](const Error& error, FailureCause cause) {
    if (cause == FailureCause::kDeath) {
      note_death(error);
    } else {
      stop_with(error);
    }
  });
  watch_for_stalls(*this);
  if (setup_.config.doctor) {
    process_.status.start();
  }
  if (setup_.config.ras_enable) {
    process_.ras.start(setup_.config);
  }
  if (device_rank_ != nullptr) {
    process_.device_watch.add(*this);
  }
  become_ready();
  const CommTopology& topology = *setup_.topology;
  const Exchange::Traffic traffic = setup_.exchange->traffic();
  PLEXUS_INFO(
      kInit,
      "comm {:#x} rank {} nranks {} host {} datacenters {} parts {} orders {} slots {} x {} bytes "
      "- "
      "Init COMPLETE in {:.3f} ms with {} messages of {} bytes",
      setup_.group, setup_.rank, setup_.nranks, mine.host, topology.datacenters.count(),
      topology.parts, topology.orders.size(), kSlots, setup_.slot_bytes,
      std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - setup_.started)
          .count(),
      traffic.messages, traffic.bytes);
  return ok();
}

/// Unless another rank's failure has come already.
void Communicator::become_ready() {
  const std::lock_guard lock(error_mutex_);
  if (!error_.has_value()) {
    set_state(Code::kSuccess);
  }
}

void Communicator::settle() {
  constexpr int kPatiences = 5;
  if (connections_ != nullptr && !stop.load(std::memory_order_acquire) && !has_survived()) {
    connections_->settle(
        Deadline::after(kPatiences * std::chrono::milliseconds(setup_.config.xdc_timeout_ms)));
  }
}

void Communicator::announce_departure(Departure how) {
  if (setup_.exchange == nullptr) {
    return;
  }
  const bool is_well = state() == Code::kSuccess && !stop.load(std::memory_order_acquire) &&
                       !revoked.load(std::memory_order_relaxed);
  std::string record = process_.stalls.leave_record(
      setup_.group, setup_.rank,
      how == Departure::kDestroyed && !is_well ? Departure::kStopped : how);
  process_.stalls.remove(setup_.group, setup_.rank);
  if (link_facts_ != nullptr) {
    link_facts_->leave();
  }
  setup_.exchange->leave(std::move(record));
}

uint64_t Communicator::next_shrink(const std::vector<int>& members) {
  const std::lock_guard lock(shrinks_mutex_);
  return ++shrinks_[members];
}

// ---- state ----

Error Communicator::stop_reason() const {
  const std::lock_guard lock(error_mutex_);
  if (error_.has_value()) {
    return error_->clone();
  }
  return state() == Code::kSystemError
             ? describe_lack_of_memory()  // see fail_for_memory()
             : plexus::fail(Code::kInternalError, "rank {} was stopped without a reason", rank());
}

void Communicator::note_error(const Error& error) {
  {
    const std::lock_guard lock(error_mutex_);
    if (!error_.has_value()) {
      error_ = error.clone();
    }
    if (!revoked.load(std::memory_order_relaxed)) {  // what its peers do then is no error of it
      set_state(error_->code());
    }
  }
  has_error_.notify_all();
}

void Communicator::stop_with(const Error& reason) {
  note_error(reason);
  stop_waiting();
  process_.async.withdraw(*this);
}

/// Kernels cannot tell what they miss, so they stop at once.
void Communicator::note_death(const Error& death) {
  note_error(death);
  if (comm_config_.device != kHostDevice) {
    stop_waiting();
  }
  has_lost_peers.store(true, std::memory_order_release);  // pairs with the engine's load
}

void Communicator::give_up_survival() {
  if (has_survived()) {
    fail(stop_reason());
  }
}

std::vector<int> Communicator::list_gone() const { return setup_.exchange->gone_ranks(); }

/// A peer that aborts, finds a mismatch or dies closes its connections. What the control plane says
/// of it comes at about the same time, and is the cause of the connection's loss.
void Communicator::await_reason() {
  std::unique_lock lock(error_mutex_);
  has_error_.wait_for(lock, kReasonWait, [this] { return error_.has_value(); });
}

void Communicator::stop_waiting() noexcept {
  stop.store(true, std::memory_order_release);  // pairs with the engine's load
  if (device_rank_ != nullptr) {
    device_rank_->stop();
  }
}

void Communicator::fail(const Error& error) {
  if (error.code() == Code::kRemoteError) {
    await_reason();
  }
  if (!stop.load(std::memory_order_acquire)) {
    owes_announcement_.store(true, std::memory_order_relaxed);
  }
  stop_with(error);
  if (owes_announcement_.load(std::memory_order_relaxed) && setup_.exchange != nullptr) {
    setup_.exchange->announce_failure(error);
    owes_announcement_.store(false, std::memory_order_relaxed);
  }
}

void Communicator::fail_for_memory() noexcept {
  try {
    insist_on_memory([this] { fail(describe_lack_of_memory()); });
  } catch (const std::exception&) {  // the others see nothing before this process ends
    set_state(Code::kSystemError);
    stop_waiting();
  }
}

void Communicator::on_stalled(Standstill standstill) {
  if (standstill.waits.empty() && standstill.held_up.empty()) {
    return;  // a one-sided operation, to which nobody owes a call: see OneSidedRun
  }
  process_.stalls.on_stalled(setup_.group, setup_.rank, std::move(standstill));
}

void Communicator::on_moved() { process_.stalls.on_moved(setup_.group, setup_.rank); }

// ---- work ----

void Communicator::check_device() {
  // Another thread may still be in start(), which makes device_rank_; pairs with its store of
  // state.
  if (state() != Code::kSuccess || device_rank_ == nullptr ||
      stop.load(std::memory_order_acquire)) {
    return;
  }
  if (device_rank_->failure() != nullptr) {
    process_.device_watch.wake();
    await_reason();
  }
}

void Communicator::look() {
  if (auto fault = device_rank_->runtime().find_fault(device_rank_->device()); fault.has_error()) {
    fail(fault.error());
    device_rank_->note_fault(std::move(fault).error());
    return;
  }
  const DeviceFailure* const failure = device_rank_->failure();
  if (failure != nullptr && !stop.load(std::memory_order_acquire)) {
    fail(runner_->order().describe(*failure));
  }
}

void Communicator::wait_submitted() {
  if (runner_.has_value()) {
    runner_->wait_submitted();
  }
}

bool Communicator::is_left() const noexcept {
  heavy_fence();  // pairs with InCall
  return calls_.load(std::memory_order_acquire) == 0 &&
         (!runner_.has_value() || runner_->is_left());
}

void Communicator::wait_left() {
  wait_until([this] { return is_left(); });
}

void Communicator::wait_unvisited() {
  wait_until([this] { return !is_visited(); });
}

}  // namespace plexus
