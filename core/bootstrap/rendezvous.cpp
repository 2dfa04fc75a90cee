// SPDX-License-Identifier: Apache-2.0
#include "core/bootstrap/rendezvous.hpp"

#include <numeric>
#include <unistd.h>

#include "core/base/log.hpp"
#include "core/bootstrap/hub_server.hpp"
#include "core/bootstrap/tcp_family.hpp"
#include "core/os/host.hpp"

namespace plexus {
namespace {

constexpr uint32_t kProtocolVersion = 1;

Result<void> listen_and_serve(const UniqueId& id, Socket listener, const Config& config) {
  // With a port that the user chose, the hub of a failed job must not stay and keep the port in
  // use.
  return start_hub_server(id, std::move(listener),
                          {.join_time = std::chrono::seconds(config.bootstrap_timeout_s),
                           .stays = config.comm_id.empty()});
}

}  // namespace

Result<UniqueId> start_root(const Config& config) {
  if (!config.comm_id.empty()) {
    return UniqueId::from_comm_id(config.comm_id);
  }
  PLEXUS_TRY(listener, listen_for_members(config));
  PLEXUS_TRY(address, listener.local_address());
  PLEXUS_TRY(id, UniqueId::create(address));
  PLEXUS_TRY(listen_and_serve(id, std::move(listener), config));
  PLEXUS_INFO(kBootstrap, "bootstrap: listening at {}", address.to_string());
  return id;
}

Result<std::unique_ptr<Exchange>> join(const Config& config,
                                       std::span<const UniqueId> ids,
                                       int rank,
                                       int nranks,
                                       const std::atomic<bool>* stop) {
  UniqueId id = ids.front();
  if (!config.comm_id.empty()) {
    PLEXUS_TRY(named, UniqueId::from_comm_id(config.comm_id));
    id = named;
    if (rank == 0) {
      PLEXUS_TRY(listener, Socket::listen(id.address, 0, 0));
      PLEXUS_TRY(listen_and_serve(id, std::move(listener), config));
    }
  }
  const auto time = std::chrono::seconds(config.bootstrap_timeout_s);
  const Patience patience{.deadline = Deadline::after(time), .stop = stop};
  const JoinInfo info{.rank = static_cast<uint32_t>(rank),
                      .nranks = static_cast<uint32_t>(nranks),
                      .version = kProtocolVersion,
                      .pid = static_cast<int32_t>(getpid()),
                      .process = process_id(),
                      .host = host_identity("").name};
  PLEXUS_TRY(family, TcpFamily::make(config, id, info, patience));
  std::vector<uint32_t> members(static_cast<size_t>(nranks));
  std::iota(members.begin(), members.end(), 0U);
  return std::make_unique<Exchange>(std::move(family), id.job, std::move(members), rank);
}

}  // namespace plexus
