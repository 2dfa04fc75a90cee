// SPDX-License-Identifier: Apache-2.0
#include "core/comm/init.hpp"

#include "core/base/log.hpp"
#include "core/bootstrap/rendezvous.hpp"
#include "core/comm/process.hpp"
#include "core/setup/set_up.hpp"

namespace plexus {

Result<void> init_by_id(Communicator& comm, int nranks, std::span<const UniqueId> ids, int rank) {
  const auto started = std::chrono::steady_clock::now();
  PLEXUS_TRY(config, Process::instance().read_settings());
  PLEXUS_INFO(kInit, "comm of {} ranks, rank {} - Init START", nranks, rank);
  PLEXUS_TRY(exchange, join(config, ids, rank, nranks, &comm.give_up));
  return init_by_exchange(comm, config, std::move(exchange), started);
}

Result<void> init_by_exchange(Communicator& child,
                              const Config& config,
                              std::unique_ptr<Exchange> exchange,
                              std::chrono::steady_clock::time_point started) {
  PLEXUS_TRY(setup, set_up(Process::instance().setup_context(), config, child.comm_config(),
                           std::move(exchange), started, &child.give_up));
  return child.start(std::move(setup));
}

}  // namespace plexus
