// SPDX-License-Identifier: Apache-2.0
#include "core/comm/init.hpp"

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/log.hpp"
#include "core/comm/process.hpp"
#include "core/comm/start_communicator.hpp"
#include "core/comm/visit.hpp"
#include "core/device/choose_device.hpp"
#include "core/device/virtual_devices.hpp"
#include "core/join/rendezvous.hpp"
#include "core/setup/set_up.hpp"

namespace plexus {
namespace {

/// The device of each rank: from the user's list, else 0, 1, ... modulo their number.
Result<std::vector<int>> choose_devices(DeviceRuntime* runtime,
                                        const Config& config,
                                        int nranks,
                                        const int* devices) {
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

/// Joins the others over the unique ids and makes `comm` ready. Blocks; ends early when `*give_up`
/// is set.
Result<void> init_by_id(Communicator& comm,
                        int nranks,
                        std::span<const UniqueId> ids,
                        int rank,
                        const std::atomic<bool>* give_up) {
  const auto started = std::chrono::steady_clock::now();
  PLEXUS_TRY(config, comm.process().read_settings());
  PLEXUS_INFO(kInit, "comm of {} ranks, rank {} - Init START", nranks, rank);
  PLEXUS_TRY(exchange, join(comm.process().agents, config, ids, rank, nranks, give_up));
  return start_with_exchange(comm, config, std::move(exchange), started, give_up);
}

/// Likewise of virtual ones, of which there must be enough; -1 for each: there are none.
Result<std::vector<int>> choose_virtual_devices(int nranks, const int* devices) {
  std::vector<int> chosen(static_cast<size_t>(nranks), kHostDevice);
  const plexusVirtualDevices* const all = virtual_devices();
  if (all == nullptr) {
    return chosen;
  }
  const int count = all->count();
  for (int rank = 0; rank < nranks; ++rank) {
    const int device = devices == nullptr ? rank : devices[rank];
    if (device >= count) {
      return fail(Code::kInvalidArgument,
                  "there is no device {} for rank {}: this process has {} virtual devices, set by "
                  "PLEXUS_CUDART_DEVICES",
                  device, rank, count);
    }
    chosen[static_cast<size_t>(rank)] = device;
  }
  return chosen;
}

struct GrowId {
  UniqueId id;
  size_t owner;  // the first rank that has it
};

/// The unique id that the ranks of `parent` go to: of those that have one, which must be the same.
Result<GrowId> agree_on_id(Communicator& parent,
                           const std::optional<UniqueId>& mine,
                           const std::atomic<bool>* give_up) {
  std::string bytes;
  if (mine.has_value()) {
    const auto raw = mine->to_bytes();
    bytes.assign(reinterpret_cast<const char*>(raw.data()), raw.size());
  }
  PLEXUS_TRY(blobs, parent.setup().exchange->all_gather(std::move(bytes), give_up));
  std::optional<size_t> owner;
  for (size_t rank = 0; rank < blobs.size(); ++rank) {
    if (!blobs[rank].empty() && blobs[rank].size() != UniqueId::kBytes) {
      return fail(Code::kInvalidUsage, "rank {} is not in the same ncclCommGrow call as rank {}",
                  rank, parent.rank());
    }
    if (!blobs[rank].empty() && owner.has_value() && blobs[rank] != blobs[*owner]) {
      return fail(Code::kInvalidUsage,
                  "ranks {} and {} call ncclCommGrow with different unique ids: use that of one "
                  "ncclCommGetUniqueId on all ranks",
                  *owner, rank);
    }
    owner = blobs[rank].empty() ? owner : owner.value_or(rank);
  }
  if (!owner.has_value()) {
    return fail(Code::kInvalidUsage,
                "no rank has a unique id for ncclCommGrow: one rank of the communicator must call "
                "ncclCommGetUniqueId before, for each growth");
  }
  const std::string_view id = blobs[*owner];
  PLEXUS_TRY(parsed,
             UniqueId::from_bytes(std::as_bytes(std::span<const char, UniqueId::kBytes>(id))));
  return GrowId{.id = parsed, .owner = *owner};
}

/// `parent` is visited until it is no longer needed.
Result<void> grow_from(std::optional<Visit>* parent,
                       Communicator& made,
                       int nranks,
                       const std::optional<UniqueId>& mine) {
  const int rank = (**parent)->rank();
  const std::atomic<bool>* const give_up = give_up_of(made, ***parent);
  PLEXUS_TRY(agreed, agree_on_id(***parent, mine, give_up));
  if (give_up == &made.give_up) {
    parent->reset();
  }
  auto joined = init_by_id(made, nranks, {&agreed.id, 1}, rank, give_up);
  if (joined.has_error()) {
    return std::move(joined).error().with_context(
        fmt::format("ncclCommGrow with the unique id that rank {} has", agreed.owner));
  }
  return joined;
}

}  // namespace

Result<void> init_rank(Process& process,
                       Communicator** comm,
                       int nranks,
                       std::span<const UniqueId> ids,
                       int rank,
                       const CommConfig& comm_config) {
  *comm = nullptr;
  CommConfig config = comm_config;
  PLEXUS_TRY(settings, process.read_settings());
  PLEXUS_TRY(device, choose_device(process.devices(), settings.device, kHostDevice));
  config.device = device;  // the one that is current now, not in the thread that makes it
  if (const auto* const devices = virtual_devices(); devices != nullptr) {
    config.virtual_device = devices->current();
  }
  note_maker(process, &config);
  return run_lifecycle_job(
      [&process, comm, nranks, rank, config, ids = std::vector<UniqueId>(ids.begin(), ids.end())] {
        return start_communicator(process, comm, config, [nranks, rank, ids](Communicator& made) {
          return init_by_id(made, nranks, ids, rank, &made.give_up);
        });
      });
}

Result<void> grow(Communicator& parent,
                  Communicator** comm,
                  int nranks,
                  const UniqueId* id,
                  const CommConfig* comm_config) {
  *comm = nullptr;
  CommConfig config = comm_config == nullptr ? parent.comm_config() : *comm_config;
  config.device = parent.comm_config().device;
  config.virtual_device = parent.comm_config().virtual_device;
  note_maker(parent.process(), &config);
  std::optional<UniqueId> mine = std::exchange(parent.grow_id, std::nullopt);
  if (id != nullptr) {
    mine = *id;
  }
  return run_lifecycle_job([&parent, comm, nranks, config, mine]() -> Result<void> {
    PLEXUS_TRY(visit, Visit::begin(parent.process(), &parent));
    // std::function wants a copyable closure.
    const auto shared = std::make_shared<std::optional<Visit>>(std::move(visit));
    return start_communicator(parent.process(), comm, config,
                              [shared, nranks, mine](Communicator& made) {
                                return grow_from(shared.get(), made, nranks, mine);
                              });
  });
}

/// All ranks are in this thread, so there is no bootstrap and no other thread.
Result<void> init_all(Process& process,
                      Communicator** comms,
                      int ndevices,
                      const int* device_list) {
  const auto started = std::chrono::steady_clock::now();
  PLEXUS_TRY(config, process.read_settings());
  const Allowing all(process.devices(), DriverCalls::kAll);
  PLEXUS_TRY(devices, choose_devices(process.devices(), config, ndevices, device_list));
  PLEXUS_TRY(virtuals, choose_virtual_devices(ndevices, device_list));
  PLEXUS_TRY(setups, set_up_local(process.setup_context(), config, devices, started));
  std::vector<std::unique_ptr<Communicator>> made;
  for (CommSetup& setup : setups) {
    CommConfig comm_config;
    comm_config.device = devices[made.size()];
    comm_config.virtual_device = virtuals[made.size()];
    note_maker(process, &comm_config);
    auto comm = Communicator::make(process, comm_config);
    open_input_check(setup, *comm);
    PLEXUS_TRY(comm->start(std::move(setup)));
    made.push_back(std::move(comm));
  }
  for (size_t rank = 0; rank < made.size(); ++rank) {
    process.communicators.add(made[rank].get());
    comms[rank] = made[rank].release();
  }
  return ok();
}

}  // namespace plexus
