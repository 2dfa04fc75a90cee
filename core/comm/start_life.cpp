// SPDX-License-Identifier: Apache-2.0
#include "core/comm/start_life.hpp"

#include <utility>

#include "core/base/log.hpp"
#include "core/base/thread.hpp"
#include "core/comm/process.hpp"
#include "core/device/choose_device.hpp"
#include "core/setup/set_up.hpp"

namespace plexus {

Result<void> start_life(Process& process,
                        Communicator** slot,
                        const CommConfig& config,
                        std::function<Result<void>(Communicator&)> make) {
  auto owner = Communicator::make(process, config);
  Communicator* const comm = owner.get();
  process.communicators.add(comm);
  if (!config.blocking) {
    *slot = comm;
    auto thread = start_thread("a non-blocking communicator", [comm, make = std::move(make)] {
      if (const int device = comm->comm_config().device; device != kHostDevice) {
        comm->process().devices()->adopt_thread(device);
      }
      auto made = make(*comm);
      if (made.has_error()) {
        PLEXUS_WARN("{}", made.error().message());
        comm->stop_with(made.error());
      }
    });
    if (thread.has_error()) {
      *slot = nullptr;
      process.communicators.remove(comm);
      return std::move(thread).error();
    }
    comm->initializer = std::move(thread).value();
    (void)owner.release();
    return fail(Code::kInProgress, "in progress");
  }
  *slot = nullptr;
  auto made = make(*comm);
  if (made.has_error()) {
    if (comm->setup().exchange != nullptr) {
      comm->setup().exchange->announce_failure(made.error());
    }
    process.communicators.remove(comm);
    return made;
  }
  *slot = owner.release();
  return ok();
}

Result<void> start_with_exchange(Communicator& made,
                                 const Config& config,
                                 std::unique_ptr<Exchange> exchange,
                                 std::chrono::steady_clock::time_point started) {
  PLEXUS_TRY(setup, set_up(made.process().setup_context(), config, made.comm_config(),
                           std::move(exchange), started, &made.give_up));
  return made.start(std::move(setup));
}

Result<void> run_life_job(LifeJob job) {
  if (!Group::open()) {
    return job();
  }
  Group::current().add(std::move(job));
  return ok();
}

}  // namespace plexus
