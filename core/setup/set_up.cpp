// SPDX-License-Identifier: Apache-2.0
#include "core/setup/set_up.hpp"

#include <algorithm>
#include <exception>
#include <new>

#include "core/base/log.hpp"
#include "core/base/memory.hpp"
#include "core/setup/agreement.hpp"
#include "core/setup/describe_rank.hpp"
#include "core/setup/ipc_trial.hpp"
#include "core/setup/networks.hpp"
#include "core/setup/same_host.hpp"
#include "core/setup/sharing.hpp"
#include "core/setup/tuner_facts.hpp"
#include "core/transport/memory/fifo_memory.hpp"

namespace plexus {
namespace {

uint32_t count_ranks_per_core(const CommSetup& setup) {
  const PeerInfo& mine = setup.mine();
  uint32_t ranks_on_my_cores = 0;
  for (const PeerInfo& info : *setup.infos) {
    ranks_on_my_cores += info.host_hash == mine.host_hash && info.core_set == mine.core_set ? 1 : 0;
  }
  const uint32_t cores = std::max(mine.cores, 1U);
  return (ranks_on_my_cores + cores - 1) / cores;
}

/// Derives the rest of the setup from what all ranks and their networks reported.
Result<void> finish(const SetupContext& context,
                    const std::atomic<bool>* give_up,
                    CommSetup& setup) {
  PLEXUS_TRY(check_agreement(*setup.infos, setup.config, [&](const std::string& text) {
    return setup.exchange->all_gather(text, give_up);
  }));
  PLEXUS_TRY(programs, context.programs->find_or_make(setup.group, [&]() -> Result<ProgramSet> {
    PLEXUS_TRY(texts, read_program_folders(setup.config.program_path));
    if (hash_of(texts) != setup.mine().programs) {
      return fail(Code::kInvalidUsage,
                  "the files in PLEXUS_PROGRAM_PATH={} changed during init: leave them alone then",
                  setup.config.program_path);
    }
    return ProgramSet(texts, setup.nranks);
  }));
  setup.programs = std::move(programs);
  PLEXUS_TRY(filter, AlgorithmFilter::parse(setup.config.algo, setup.config.proto,
                                            setup.programs->families()));
  setup.filter = std::move(filter);
  PLEXUS_TRY(topology,
             agree_on_topology({.rank = setup.rank,
                                .group = setup.group,
                                .infos = *setup.infos,
                                .config = &setup.config,
                                .net = setup.nets == nullptr ? nullptr : setup.nets->first(),
                                .exchange = setup.exchange.get(),
                                .give_up = give_up,
                                .cache = context.topologies}));
  setup.topology = std::move(topology);
  PLEXUS_TRY(slot_bytes, fit_slots(setup, choose_slot_bytes(*setup.infos)));
  setup.slot_bytes = slot_bytes;
  setup.tuner_facts =
      describe_to_tuner(*setup.infos, *setup.topology, setup.group, setup.slot_bytes);
  describe_measured_links(setup.copy_methods, setup.tuner_facts);
  const auto [channels_min, channels_max] = bounds_of_channels(*setup.infos);
  setup.channels_min = static_cast<int>(channels_min);
  setup.channels_max = static_cast<int>(channels_max);
  setup.blocks = static_cast<int>(blocks_of_rank(*setup.infos));
  setup.net_channels = static_cast<int>(choose_net_channels(*setup.infos));
  setup.ranks_per_core = count_ranks_per_core(setup);
  PLEXUS_TRY(collnet, agree_on_collnet(context, setup, give_up));
  setup.collnet = std::move(collnet);
  return ok();
}

Result<std::vector<PeerInfo>> read_infos(Exchange& exchange,
                                         const Gathered& own,
                                         const Gathered& common) {
  std::vector<PeerInfo> infos;
  infos.reserve(own.size());
  for (size_t rank = 0; rank < own.size(); ++rank) {
    PLEXUS_TRY(info, PeerInfo::from_bytes(own[rank], common[rank]));
    const std::string host = exchange.host_of(static_cast<int>(rank));
    host.copy(info.host, sizeof(info.host) - 1);
    infos.push_back(info);
  }
  return infos;
}

Result<void> agree(const SetupContext& context,
                   const CommConfig& comm_config,
                   const std::atomic<bool>* give_up,
                   CommSetup& setup) {
  PLEXUS_TRY(try_ipc(context.devices, setup, give_up));
  PLEXUS_TRY(agree_on_same_host(context, setup, give_up));  // says who needs a network
  PLEXUS_TRY(agree_on_networks(context, setup, comm_config, give_up));
  return finish(context, give_up, setup);
}

/// Ranks of one process that may not use addresses share memory as processes do, if it can be made.
void isolate_local(std::vector<PeerInfo>& infos) {
  const PeerInfo& first = infos.front();
  if (infos.size() == 1 || first.p2p_disable == 0 || first.shm_disable != 0) {
    return;
  }
  const std::string why = why_no_slots(fifo_memory_bytes(choose_slot_bytes(infos)));
  if (!why.empty()) {
    PLEXUS_WARN("the ranks of this process use the network instead of shared memory: {}", why);
    for (PeerInfo& info : infos) {
      info.shm_disable = 1;
    }
  }
}

/// Tells the others, who wait in the exchange, when this rank leaves its set-up by an exception.
class AnnouncesThrow {
 public:
  explicit AnnouncesThrow(Exchange& exchange) : exchange_(exchange) {}
  ~AnnouncesThrow() {
    if (std::uncaught_exceptions() > before_) {
      try {
        exchange_.announce_failure(describe_lack_of_memory());
      } catch (const std::bad_alloc&) {  // NOLINT(bugprone-empty-catch): leaving tells them, too
      }
    }
  }
  AnnouncesThrow(const AnnouncesThrow&) = delete;
  AnnouncesThrow& operator=(const AnnouncesThrow&) = delete;

 private:
  Exchange& exchange_;
  const int before_ = std::uncaught_exceptions();
};

}  // namespace

Result<CommSetup> set_up(const SetupContext& context,
                         const Config& config,
                         const CommConfig& comm_config,
                         std::unique_ptr<Exchange> exchange,
                         std::chrono::steady_clock::time_point started,
                         const std::atomic<bool>* give_up) {
  CommSetup setup;
  const AnnouncesThrow announces(*exchange);  // after `setup`, which takes the exchange
  auto described = describe_rank(config, comm_config, context.devices);
  if (described.has_error()) {
    // unblocks the others, which wait in the exchange
    exchange->announce_failure(described.error());
    return std::move(described).error();
  }
  setup.started = started;
  setup.rank = exchange->rank();
  setup.nranks = exchange->nranks();
  setup.group = exchange->group();
  setup.config = config;
  // Until all have tried to map it.
  const auto shown = described.value().shm_disable != 0
                         ? nullptr
                         : show_memory(*context.shown, exchange->group(), described.value());
  PLEXUS_TRY(own, exchange->all_gather(described.value().own_bytes(), give_up));
  PLEXUS_TRY(common, exchange->all_gather(described.value().common_bytes(), give_up));
  PLEXUS_TRY(infos, context.infos->find_or_make(
                        setup.group, [&] { return read_infos(*exchange, own, common); }));
  setup.infos = std::move(infos);
  setup.exchange = std::move(exchange);
  if (auto agreed = agree(context, comm_config, give_up, setup); agreed.has_error()) {
    setup.exchange->announce_failure(agreed.error());
    return std::move(agreed).error();
  }
  return setup;
}

Result<std::vector<CommSetup>> set_up_local(const SetupContext& context,
                                            const Config& config,
                                            std::span<const int> devices,
                                            std::chrono::steady_clock::time_point started) {
  auto exchanges = make_local_exchanges(static_cast<int>(devices.size()), context.hooks);
  PLEXUS_TRY(self, describe_rank(config, {}, context.devices));
  const auto infos = std::make_shared<std::vector<PeerInfo>>(devices.size(), self);
  std::vector<CommSetup> setups(devices.size());
  for (size_t rank = 0; rank < devices.size(); ++rank) {
    PLEXUS_TRY(describe_device(devices[rank], context.devices, (*infos)[rank]));
    CommSetup& setup = setups[rank];
    setup.started = started;
    setup.rank = static_cast<int>(rank);
    setup.nranks = static_cast<int>(devices.size());
    setup.exchange = std::move(exchanges[rank]);
    setup.group = setup.exchange->group();
    setup.infos = infos;
    setup.config = config;
  }
  isolate_local(*infos);
  PLEXUS_TRY(agree_on_networks(context, setups, CommConfig{}));
  for (CommSetup& setup : setups) {
    PLEXUS_TRY(finish(context, nullptr, setup));
  }
  return setups;
}

}  // namespace plexus
