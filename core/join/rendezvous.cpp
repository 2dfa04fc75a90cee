// SPDX-License-Identifier: Apache-2.0
#include "core/join/rendezvous.hpp"

#include <optional>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

#include "core/base/log.hpp"
#include "core/control/agent_host.hpp"
#include "core/control/family.hpp"
#include "core/join/introducer_server.hpp"
#include "core/join/job_secret.hpp"
#include "guest/interface_choice.hpp"
#include "security/seal.hpp"

namespace plexus {
namespace {

constexpr uint32_t kProtocolVersion = 2;
constexpr auto kRetryPause = std::chrono::milliseconds(50);
// Tolerates a network that is still coming up, or is cut for a moment.
constexpr auto kRefusedTime = std::chrono::seconds(2);
// TCP itself gives up earlier (set_options of core/os/socket.cpp), after four tries.
constexpr auto kSilentTime = std::chrono::seconds(40);
// Later than the introducer's own deadline, whose error names the missing ranks.
constexpr auto kExtraGatherTime = std::chrono::seconds(5);

/// read_config() has checked the text.
security::Mode mode_of(const Config& config) {
  return security::parse_mode(config.net_security).value_or(security::Mode::kAuth);
}

Result<void> introduce(const UniqueId& id, Socket listener, const Config& config) {
  // With a port that was chosen, the introducer of a failed job must not stay and keep the port in
  // use.
  return start_introducer(with_job_secret(id, config.job_secret), std::move(listener),
                          {.mode = mode_of(config),
                           .join_time = std::chrono::seconds(config.bootstrap_timeout_s),
                           .stays = id.listener == UniqueId::Listener::kMaker});
}

/// With which of several ids a rank registers: blocks of ranks, of which the first ones may be
/// larger by one.
size_t share_of(int rank, int nranks, size_t nids) {
  const auto number = static_cast<size_t>(rank);
  const size_t size = static_cast<size_t>(nranks) / nids;
  const size_t larger = static_cast<size_t>(nranks) % nids;
  const size_t in_larger = larger * (size + 1);
  return number < in_larger ? number / (size + 1) : larger + (number - in_larger) / size;
}

Error describe_absence() {
  return fail(
      Code::kRemoteError,
      "no process listens there any more: the one that called ncclGetUniqueId has ended, or gave "
      "up since no rank came within PLEXUS_BOOTSTRAP_TIMEOUT, or all ranks of this id have joined; "
      "it must live until all ranks have joined, and a new job needs a new unique id");
}

/// Nothing comes back from the address: neither an answer nor a refusal.
Error describe_silence(const SocketAddress& address, const Config& config, Clock::duration time) {
  const auto own = find_own_address(config);
  return fail(Code::kTimeout,
              "connecting to {} (port {}): no answer for {} s{}; a firewall between the hosts "
              "drops what goes there (allow the ports of PLEXUS_PORT_RANGE), or the address is of "
              "another network: choose the interface with NCCL_SOCKET_IFNAME",
              address.to_string(), address.port(),
              std::chrono::duration_cast<std::chrono::seconds>(time).count(),
              own.has_value() ? " from the interface with " + own.value().to_host() : "");
}

/// Connects, and retries until patience ends while the introducer is busy or, with `may_come` (rank
/// 0 is the listener), does not listen yet. One that listened when the id was made and now refuses
/// is gone.
Result<Socket> connect_to_introducer(const SocketAddress& address,
                                     bool may_come,
                                     const Config& config,
                                     const Patience& patience) {
  std::optional<Deadline> refused;
  for (;;) {
    const auto began = Clock::now();
    auto socket = Socket::connect(
        address, {.deadline = patience.deadline.or_after(kSilentTime), .stop = patience.stop});
    if (socket.has_error() && socket.error().code() == Code::kTimeout) {
      return describe_silence(address, config, Clock::now() - began);
    }
    const bool is_refused = socket.has_error() && socket.error().code() == Code::kRemoteError;
    if (socket.has_value() || (!is_refused && socket.error().code() != Code::kSystemError)) {
      return socket;
    }
    refused =
        is_refused ? refused.value_or(Deadline::after(kRefusedTime)) : std::optional<Deadline>();
    if (!may_come && refused.has_value() && refused->expired()) {
      return describe_absence();
    }
    if (patience.deadline.expired()) {
      return refused.has_value() && !may_come
                 ? describe_absence()
                 : std::move(socket).error().with_context("no process listens for this job");
    }
    if (patience.stop != nullptr && patience.stop->load(std::memory_order_acquire)) {
      return fail(Code::kInvalidUsage, "aborted");
    }
    std::this_thread::sleep_for(kRetryPause);
  }
}

/// Advances a connection to the introducer until both sides have proved themselves.
Result<ProvenSocket> prove(Socket socket, const security::Terms& terms, const Patience& patience) {
  security::Session session(socket.fd(), security::Role::kCaller, terms);
  for (;;) {
    switch (session.advance()) {
      case security::Session::State::kProven:
        return ProvenSocket{std::move(socket), std::move(session)};
      case security::Session::State::kFailed:
        return session.was_cut() ? fail(Code::kRemoteError, "{}", session.error())
                                 : fail(Code::kInvalidUsage,
                                        "who listens there, the process that made the unique id or "
                                        "another one, was not accepted: {}",
                                        session.error());
      case security::Session::State::kPending:
        PLEXUS_TRY(
            patience.wait(socket.fd(), session.awaits(), "waiting for " + socket.peer_name()));
    }
  }
}

/// Listens, in rank 0, for an id whose listener is rank 0.
Result<Socket> listen_as_rank_zero(const UniqueId& id) {
  if (id.listener == UniqueId::Listener::kRankZero) {
    return Socket::listen(id.address, 0, 0);
  }
  for (const char* anywhere : {"[::]", "0.0.0.0"}) {
    PLEXUS_TRY(address, SocketAddress::parse(fmt::format("{}:{}", anywhere, id.address.port())));
    auto listener = Socket::listen(address, 0, 0);
    if (listener.has_value() || address.family() == AF_INET) {
      return listener;
    }
  }
  return fail(Code::kInternalError, "no family of addresses");
}

}  // namespace

/// One rank that joins.
class Joining {
 public:
  /// `id`: that of the job. `introducer`: the one, of several, where this rank registers.
  Joining(Agents& agents,
          const Config& config,
          const UniqueId& id,
          const UniqueId& introducer,
          const Patience& patience)
      : agents_(agents), config_(config), id_(id), introducer_(introducer), patience_(patience) {}

  Result<std::shared_ptr<Family>> join(const JoinInfo& info) {
    const auto slot = agents_.slot_of(id_.job);
    PLEXUS_TRY(take_turn(*slot));
    const Turn turn{*slot};
    return join_in_turn(*slot, info);
  }

 private:
  struct Turn {
    Agents::Slot& slot;
    ~Turn() {
      const std::lock_guard lock(slot.mutex);
      slot.is_busy = false;
      slot.changed.notify_one();
    }
  };
  /// Waits while another rank of this process is connecting.
  Result<void> take_turn(Agents::Slot& slot) {
    std::unique_lock lock(slot.mutex);
    while (slot.is_busy) {
      slot.changed.wait_for(lock, kRetryPause);
      if (patience_.deadline.expired()) {
        return fail(Code::kTimeout,
                    "another rank of this process does not get a connection to the process that "
                    "made the unique id");
      }
      if (patience_.stop != nullptr && patience_.stop->load(std::memory_order_acquire)) {
        return fail(Code::kInvalidUsage, "aborted");
      }
    }
    slot.is_busy = true;
    return ok();
  }

  Result<std::shared_ptr<Family>> join_in_turn(Agents::Slot& slot, const JoinInfo& info) {
    auto server = slot.server.lock();
    if (server == nullptr || !server->is_joinable()) {
      PLEXUS_TRY(made, start(info));
      server = std::move(made);
      slot.server = server;
    }
    auto family = std::make_shared<Family>(
        server, info.rank,
        Family::Times{
            .gather = std::chrono::seconds(config_.bootstrap_timeout_s) + kExtraGatherTime,
            .late = std::chrono::seconds(config_.stall_s)});
    PLEXUS_TRY(server->join(info, *family));
    return family;
  }

  Result<std::shared_ptr<AgentServer>> start(const JoinInfo& info) {
    PLEXUS_TRY(proven, reach_introducer());
    auto server = start_agent(proven);
    if (server.has_error()) {
      // So few bytes fit in the buffer of a new socket.
      const Error error = server.error().clone().with_context(
          fmt::format("rank {} ({}:{})", info.rank, info.process.host, info.process.pid));
      const std::string bytes =
          encode(Message{.type = MessageType::kFail, .from = ~0U, .payload = encode(error)});
      (void)proven.session.send(bytes.data(), bytes.size());
      return server;
    }
    if (introducer_.job != id_.job) {
      server.value()->name_first_id(
          security::seal(introducer_.secret, kFirstIdPurpose, id_.to_bytes()));
    }
    return server;
  }
  /// Tries again where the network cuts a connection that says nothing yet of a rank: nobody would
  /// know that this one is missing.
  Result<ProvenSocket> reach_introducer() {
    const security::Terms terms{.mode = mode_of(config_), .key = introducer_.secret};
    std::optional<Deadline> cut;
    for (;;) {
      PLEXUS_TRY(address, introducer_address());
      PLEXUS_TRY(socket,
                 connect_to_introducer(address, introducer_.listener != UniqueId::Listener::kMaker,
                                       config_, patience_));
      auto proven = prove(std::move(socket), terms, patience_);
      if (proven.has_value()) {
        return proven;
      }
      cut = cut.value_or(Deadline::after(kRefusedTime));
      if (proven.error().code() != Code::kRemoteError || cut->expired()) {
        return describe(std::move(proven).error());
      }
      PLEXUS_INFO(kBootstrap, "bootstrap: connects to {} again: {}",
                  introducer_.address.to_string(), proven.error().message());
      std::this_thread::sleep_for(kRetryPause);
    }
  }
  /// Takes `introducer` only if it succeeds.
  Result<std::shared_ptr<AgentServer>> start_agent(ProvenSocket& introducer) {
    PLEXUS_TRY(listener, listen(introducer.socket));
    return AgentServer::start(id_, agents_.process_, std::move(listener), introducer,
                              static_cast<size_t>(config_.control_connections), agents_.hooks_);
  }
  /// A link-local address is on the link of this host's interface.
  Result<SocketAddress> introducer_address() {
    const SocketAddress& address = introducer_.address;
    if (reach_of(*address.raw()) != AddressReach::kLink || address.family() != AF_INET6) {
      return address;
    }
    PLEXUS_TRY(own, find_own_address(config_));
    return address.as_seen_from(own);
  }
  /// What the failure of the handshake with the introducer means.
  static Error describe(Error error) {
    switch (error.code()) {
      case Code::kTimeout:
        return std::move(error).with_context("the process that made the unique id does not answer");
      case Code::kRemoteError:
        return std::move(error).with_context(
            "the process that made the unique id has ended or refuses this rank");
      default:
        return error;
    }
  }
  /// Where the user says, else at the interface that leads to the introducer.
  Result<Socket> listen(const Socket& introducer) {
    if (!config_.bootstrap_ifname.empty() || !config_.socket_ifname.empty()) {
      return listen_for_members(config_);
    }
    PLEXUS_TRY(address, introducer.local_address());
    if (address.is_loopback() && id_.listener == UniqueId::Listener::kRankZeroAnywhere) {
      return listen_for_members(config_);  // the others do not reach it there
    }
    PLEXUS_TRY(range, parse_port_range(config_.port_range));
    address.set_port(0);
    return Socket::listen(address, range.low, range.high);
  }

  Agents& agents_;
  const Config& config_;
  const UniqueId& id_;
  const UniqueId& introducer_;
  const Patience& patience_;
};

std::shared_ptr<Agents::Slot> Agents::slot_of(uint64_t job) {
  const std::lock_guard lock(mutex_);
  std::erase_if(slots_, [](const auto& slot) {
    const std::lock_guard slot_lock(slot.second->mutex);
    return slot.second.use_count() == 1 && slot.second->server.expired();
  });
  const auto known = slots_.find(job);
  if (known != slots_.end()) {
    return known->second;
  }
  return slots_.emplace(job, std::make_shared<Slot>()).first->second;
}

Result<PortRange> parse_port_range(const std::string& text) {
  const auto range = parse_ports(text);
  if (!range.has_value()) {
    return fail(Code::kInvalidArgument,
                "PLEXUS_PORT_RANGE={} is not understood: it takes low-high in 1..65535", text);
  }
  return *range;
}

Result<SocketAddress> find_own_address(const Config& config) {
  const bool has_own = !config.bootstrap_ifname.empty();
  return find_interface(has_own ? config.bootstrap_ifname : config.socket_ifname,
                        config.socket_family,
                        has_own ? "NCCL_OOB_NET_IFNAME" : "NCCL_SOCKET_IFNAME");
}

Result<Socket> listen_for_members(const Config& config) {
  PLEXUS_TRY(range, parse_port_range(config.port_range));
  PLEXUS_TRY(address, find_own_address(config));
  return Socket::listen(address, range.low, range.high);
}

Result<UniqueId> start_root(const Config& config) {
  if (!config.comm_id.empty()) {
    return UniqueId::from_comm_id(config.comm_id);
  }
  PLEXUS_TRY(listener, listen_for_members(config));
  PLEXUS_TRY(address, listener.local_address());
  PLEXUS_TRY(id, UniqueId::create(address));
  PLEXUS_TRY(introduce(id, std::move(listener), config));
  PLEXUS_INFO(kBootstrap, "bootstrap: listening at {}", address.to_string());
  return id;
}

Result<std::unique_ptr<Exchange>> join(Agents& agents,
                                       const Config& config,
                                       std::span<const UniqueId> ids,
                                       int rank,
                                       int nranks,
                                       const std::atomic<bool>* stop) {
  UniqueId id = ids.front();
  if (!config.comm_id.empty()) {
    PLEXUS_TRY(named, UniqueId::from_comm_id(config.comm_id));
    id = named;
  }
  const bool is_derived = id.listener != UniqueId::Listener::kMaker;
  if (is_derived && rank == 0) {
    auto listener = listen_as_rank_zero(id);
    if (listener.has_error()) {
      return std::move(listener).error().with_context(
          "rank 0 listens for the others where NCCL_COMM_ID or the launcher says");
    }
    PLEXUS_TRY(introduce(id, std::move(listener).value(), config));
  }
  const auto time = std::chrono::seconds(config.bootstrap_timeout_s);
  const Patience patience{.deadline = Deadline::after(time), .stop = stop};
  const JoinInfo info{.rank = static_cast<uint32_t>(rank),
                      .nranks = static_cast<uint32_t>(nranks),
                      .version = kProtocolVersion,
                      .process = {.process = agents.id(),
                                  .host_key = host_identity(config.hostid).hash,
                                  .pid = static_cast<int32_t>(getpid()),
                                  .host = host_identity("").name}};
  const UniqueId introducer =
      with_job_secret(is_derived ? id : ids[share_of(rank, nranks, ids.size())], config.job_secret);
  id = with_job_secret(id, config.job_secret);
  auto family = Joining(agents, config, id, introducer, patience).join(info);
  if (family.has_error()) {
    return std::move(family).error().with_context(
        fmt::format("rank {} joining {}", rank, introducer.address.to_string()));
  }
  return std::make_unique<Exchange>(std::move(family).value(), id.job,
                                    all_ranks(static_cast<size_t>(nranks)), rank);
}

}  // namespace plexus
