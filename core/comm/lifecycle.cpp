// SPDX-License-Identifier: Apache-2.0
// The life of communicators: made by unique id or all at once, finalized, destroyed, aborted.
#include <algorithm>
#include <chrono>
#include <numeric>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "core/base/log.hpp"
#include "core/base/thread.hpp"
#include "core/comm/communicator_calls.hpp"
#include "core/comm/group.hpp"
#include "core/comm/init.hpp"
#include "core/comm/launch_life.hpp"
#include "core/comm/process.hpp"
#include "core/device/choose_device.hpp"
#include "core/os/host.hpp"
#include "core/setup/set_up.hpp"

namespace plexus {
namespace {

Error in_progress() { return fail(Code::kInProgress, "in progress"); }

/// Ends a communicator whose plans are done or stopped, after what it owes its peers.
void release(Communicator* comm) {
  if (comm->initializer.joinable()) {
    comm->initializer.join();
  }
  comm->wait_submitted();
  comm->wait_left();
  comm->settle();
  comm->say_goodbye();
  const std::unique_ptr<Communicator> owner(comm);
}

}  // namespace

namespace {

/// An aborted rank: gone on return, unless its kernels have not begun since other work is before
/// them on their streams. They will end as soon as they begin; what they use goes then.
void release_aborted(Communicator* comm) {
  constexpr auto kPatience = std::chrono::milliseconds(500);
  if (comm->device_rank() == nullptr || comm->runner().wait_submitted_for(kPatience)) {
    release(comm);
    return;
  }
  auto thread = start_thread("an aborted communicator", [comm] { release(comm); });
  if (thread.has_error()) {
    release(comm);
    return;
  }
  thread.value().detach();  // touches only what lives as long as the process
}

}  // namespace

bool is_live(const Communicator* comm) noexcept {
  return comm != nullptr &&
         comm->magic.load(std::memory_order_relaxed) == Communicator::live_magic();
}
int rank_of(const Communicator& comm) noexcept { return comm.rank(); }
int nranks_of(const Communicator& comm) noexcept { return comm.nranks(); }
int device_of(const Communicator& comm) noexcept { return comm.comm_config().device; }
LastChoice last_choice(const Communicator& comm) noexcept { return comm.last_choice(); }
Code async_error(Communicator& comm) noexcept {
  comm.check_device();
  return comm.state();
}

Result<void> check_usable(const Communicator& comm) noexcept {
  const Code state = comm.state();
  if (state == Code::kSuccess && !comm.revoked && !comm.finalized) {
    return ok();
  }
  if (comm.revoked) {
    return fail(Code::kInvalidUsage,
                "the communicator was revoked: only split, shrink and destroy are possible");
  }
  if (state == Code::kInProgress) {
    return fail(Code::kInvalidArgument,
                "the communicator is not ready: poll ncclCommGetAsyncError until it is");
  }
  if (comm.finalized) {
    return fail(Code::kInvalidUsage, "the communicator was finalized: only destroy is possible");
  }
  return comm.stop_reason();
}

Result<void> check_reach(const Communicator& comm, const void* buffer, const char* what) {
  if (comm.device_rank() == nullptr || !comm.setup().config.check_pointers) {
    return ok();
  }
  const int device = comm.device_rank()->device();
  const PointerFacts facts = comm.device_rank()->runtime().describe_pointer(buffer);
  if (facts.place == PointerFacts::Place::kPageable) {
    return fail(Code::kInvalidArgument,
                "the {} {} is memory that CUDA does not know: rank {} computes on cuda:{}", what,
                fmt::ptr(buffer), comm.rank(), device);
  }
  if (facts.place == PointerFacts::Place::kDevice && facts.device != device) {
    return fail(Code::kInvalidArgument,
                "the {} {} is memory of cuda:{}, rank {} computes on cuda:{}", what,
                fmt::ptr(buffer), facts.device, comm.rank(), device);
  }
  return ok();
}

Result<void> check_splittable(const Communicator& comm) noexcept {
  return comm.revoked ? Result<void>(ok()) : check_usable(comm);
}

Result<void> start_life(Communicator** slot,
                        const CommConfig& config,
                        std::function<Result<void>(Communicator&)> make) {
  auto owner = std::make_unique<Communicator>(config);
  Communicator* const comm = owner.get();
  LiveCommunicators::instance().add(comm);
  if (!config.blocking) {
    *slot = comm;
    auto thread = start_thread("a non-blocking communicator", [comm, make = std::move(make)] {
      if (const int device = comm->comm_config().device; device != kHostDevice) {
        Process::instance().devices()->adopt_thread(device);
      }
      auto made = make(*comm);
      if (made.has_error()) {
        PLEXUS_WARN("{}", made.error().message());
        comm->stop_with(made.error());
      }
    });
    if (thread.has_error()) {
      *slot = nullptr;
      LiveCommunicators::instance().remove(comm);
      return std::move(thread).error();
    }
    comm->initializer = std::move(thread).value();
    (void)owner.release();
    return in_progress();
  }
  *slot = nullptr;
  auto made = make(*comm);
  if (made.has_error()) {
    if (comm->setup().exchange != nullptr) {
      comm->setup().exchange->announce_failure(made.error());
    }
    LiveCommunicators::instance().remove(comm);
    return made;
  }
  *slot = owner.release();
  return ok();
}

Result<void> run_life_job(LifeJob job) {
  if (!Group::open()) {
    return job();
  }
  Group::current().add(std::move(job));
  return ok();
}

Result<void> init_rank(Communicator** comm,
                       int nranks,
                       std::span<const UniqueId> ids,
                       int rank,
                       const CommConfig& comm_config) {
  *comm = nullptr;
  CommConfig config = comm_config;
  PLEXUS_TRY(settings, Process::instance().read_settings());
  PLEXUS_TRY(device, choose_device(Process::instance().devices(), settings.device, kHostDevice));
  config.device = device;  // the one that is current now, not in the thread that makes it
  config.maker = pthread_self();
  return run_life_job(
      [comm, nranks, rank, config, ids = std::vector<UniqueId>(ids.begin(), ids.end())] {
        return start_life(comm, config, [nranks, rank, ids](Communicator& made) {
          return init_by_id(made, nranks, ids, rank);
        });
      });
}

namespace {

/// By rank: the user's list, else the devices in turn.
Result<std::vector<int>> choose_devices(const Config& config, int nranks, const int* devices) {
  DeviceRuntime* const runtime = Process::instance().devices();
  PLEXUS_TRY(first, choose_device(runtime, config.device, kHostDevice));
  std::vector<int> chosen(static_cast<size_t>(nranks), kHostDevice);
  if (first == kHostDevice) {
    return chosen;
  }
  PLEXUS_TRY(count, runtime->count());
  for (int rank = 0; rank < nranks; ++rank) {
    PLEXUS_TRY(device, choose_device(runtime, config.device,
                                     devices == nullptr ? rank % count : devices[rank]));
    chosen[static_cast<size_t>(rank)] = device;
  }
  return chosen;
}

}  // namespace

/// All ranks are here: no bootstrap, no threads, one description for each.
Result<void> init_all(Communicator** comms, int ndevices, const int* device_list) {
  const auto started = std::chrono::steady_clock::now();
  Process& process = Process::instance();
  PLEXUS_TRY(config, process.read_settings());
  PLEXUS_TRY(devices, choose_devices(config, ndevices, device_list));
  PLEXUS_TRY(setups, set_up_local(process.setup_context(), config, devices, started));
  std::vector<std::unique_ptr<Communicator>> made;
  for (CommSetup& setup : setups) {
    CommConfig comm_config;
    comm_config.device = devices[made.size()];
    comm_config.maker = pthread_self();
    auto comm = std::make_unique<Communicator>(comm_config);
    PLEXUS_TRY(comm->start(std::move(setup)));
    made.push_back(std::move(comm));
  }
  for (size_t rank = 0; rank < made.size(); ++rank) {
    LiveCommunicators::instance().add(made[rank].get());
    comms[rank] = made[rank].release();
  }
  return ok();
}

Result<void> finalize(Communicator& comm) {
  if (comm.finalized) {
    return fail(Code::kInvalidArgument, "the communicator was finalized before");
  }
  if (comm.revoked) {
    return fail(Code::kInvalidArgument, "a revoked communicator cannot be finalized: destroy it");
  }
  if (comm.state() == Code::kInProgress) {
    return fail(Code::kInvalidArgument,
                "the communicator is not ready: poll ncclCommGetAsyncError until it is");
  }
  comm.wait_submitted();
  comm.finalized = true;
  if (comm.stop.load(std::memory_order_acquire)) {
    return comm.stop_reason();
  }
  return ok();
}

Result<void> destroy(Communicator* comm) {
  if (!LiveCommunicators::instance().remove(comm)) {
    return fail(Code::kInvalidArgument, "the communicator was destroyed before, or never made");
  }
  // Of a group that fails before its end: not destroyed, so that it can be tried again.
  struct Leaving {
    explicit Leaving(Communicator* leaving) : comm(leaving) {}
    Leaving(const Leaving&) = delete;
    Leaving& operator=(const Leaving&) = delete;
    Communicator* comm;
    ~Leaving() {
      if (comm != nullptr) {
        LiveCommunicators::instance().add(comm);
      }
    }
  };
  const auto leaving = std::make_shared<Leaving>(comm);  // std::function copies
  return run_life_job([leaving]() -> Result<void> {
    release(std::exchange(leaving->comm, nullptr));
    return ok();
  });
}

Result<void> abort(Communicator* comm) {
  if (!LiveCommunicators::instance().remove(comm)) {
    return fail(Code::kInvalidArgument, "the communicator was destroyed before, or never made");
  }
  comm->give_up.store(true, std::memory_order_release);
  if (comm->initializer.joinable()) {
    comm->initializer.join();
  }
  const bool was_well = !comm->stop.load(std::memory_order_acquire);
  comm->stop_with(fail(Code::kInvalidUsage, "the communicator was aborted by ncclCommAbort"));
  if (comm->setup().exchange != nullptr) {
    if (was_well) {
      comm->setup().exchange->announce_failure(
          fail(Code::kRemoteError, "rank {} called ncclCommAbort", comm->rank()));
    }
    comm->setup().exchange->stop();
  }
  release_aborted(comm);
  return ok();
}

Result<void> revoke(Communicator& comm) {
  if (comm.finalized || comm.revoked) {
    return fail(Code::kInvalidArgument, "the communicator was finalized or revoked before");
  }
  if (comm.state() == Code::kInProgress) {
    return fail(Code::kInvalidArgument,
                "the communicator is not ready: poll ncclCommGetAsyncError until it is");
  }
  comm.revoked = true;
  comm.stop_with(fail(Code::kInvalidUsage, "the communicator was revoked"));
  comm.wait_submitted();
  comm.wait_left();
  comm.set_state(Code::kSuccess);
  return ok();
}

}  // namespace plexus
