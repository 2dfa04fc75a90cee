// SPDX-License-Identifier: Apache-2.0
#include "core/setup/same_host.hpp"

#include <algorithm>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "core/base/bytes.hpp"
#include "core/base/log.hpp"
#include "core/base/text.hpp"
#include "core/os/process_memory.hpp"
#include "core/peers/reach.hpp"
#include "core/setup/sharing.hpp"
#include "core/setup/tuner_facts.hpp"
#include "core/transport/memory/fifo_memory.hpp"

namespace plexus {
namespace {

constexpr size_t kObstacleBytesMax = 1024;

bool share_slots(const PeerInfo& a, const PeerInfo& b) {
  return !a.on_cuda() && !b.on_cuda() && reach_of(a, b) == PeerReach::kSharedMemory;
}

/// Why this rank does not read the memory of its peers on this host; empty: it does.
std::string find_obstacle(const CommSetup& setup) {
  for (size_t peer = 0; peer < setup.infos->size(); ++peer) {
    const PeerInfo& info = (*setup.infos)[peer];
    if (!share_slots(setup.mine(), info)) {
      continue;
    }
    if (setup.mine().attach == 0 || info.attach == 0) {
      return "PLEXUS_ATTACH is 0";
    }
    const PeerProcess process(info.pid, info.process_id, info.mark_address);
    if (const int error = process.probe(); error != 0) {
      return fmt::format("{} cannot read {}: {}", describe_rank(setup.rank, setup.mine()),
                         describe_rank(static_cast<int>(peer), info),
                         describe_refused_attach(error));
    }
  }
  return "";
}

/// Whether this rank speaks for its host: the first of those that share slots there.
bool leads_host(const CommSetup& setup) {
  const auto& infos = *setup.infos;
  const auto shares = [&](const PeerInfo& info) { return share_slots(setup.mine(), info); };
  return std::none_of(infos.begin(), infos.begin() + setup.rank, shares) &&
         std::any_of(infos.begin() + setup.rank, infos.end(), shares);
}

// ---- a rank's message: whether it leads its host, its host's rates (all 0: not known), why it
// does not read its peers' memory (empty: it does), and whose memory it cannot map ----

struct HostReport {
  uint8_t leads = 0;
  HostRates rates;
  std::string_view obstacle;
  std::string_view sharing;
};

std::string encode(const SetupContext& context, const CommSetup& setup) {
  ByteWriter writer;
  const bool leads = leads_host(setup);
  writer.put<uint8_t>(leads ? 1 : 0);
  if (leads) {
    writer.put(context.rates->find(setup.config.rates_file).value_or(HostRates{}));
  }
  writer.put_text<uint32_t>(find_obstacle(setup));
  writer.put_bytes(encode(
      try_to_share(setup.rank, *setup.infos, fifo_memory_bytes(choose_slot_bytes(*setup.infos)))));
  return writer.take();
}

Result<HostReport> decode(std::string_view bytes) {
  ByteReader reader(bytes);
  HostReport report;
  report.leads = reader.take<uint8_t>();
  if (report.leads != 0) {
    report.rates = reader.take<HostRates>();
  }
  report.obstacle = reader.take_text<uint32_t>(kObstacleBytesMax);
  if (reader.broken()) {
    return fail(Code::kRemoteError,
                "what another rank says of its host is malformed: use the same version of Plexus "
                "on all ranks");
  }
  if (report.rates != HostRates{} && !is_plausible(report.rates)) {
    PLEXUS_INFO(kTuning, "the rates of another host cannot be true: built-in rates are used");
    report.rates = {};
  }
  report.sharing = reader.rest();
  return report;
}

/// The worst of all hosts; not measured when one of them is not.
struct Joined {
  HostCopyMethods copy_methods;
  std::string obstacle;
  std::vector<SharingReport> sharing;
};

Result<Joined> join(const Gathered& blobs, const Config& config) {
  Joined joined;
  HostCopyMethods copy_methods{.attach = true, .attach_bytes = config.attach_bytes};
  std::optional<HostRates> worst;
  bool all = true;
  for (size_t rank = 0; rank < blobs.size(); ++rank) {
    PLEXUS_TRY(report, decode(blobs[rank]));
    if (report.leads != 0) {
      all = all && report.rates != HostRates{};
      worst = worst ? worst_of(*worst, report.rates) : report.rates;
    }
    if (!report.obstacle.empty() && copy_methods.attach) {
      copy_methods.attach = false;
      joined.obstacle = report.obstacle;
    }
    PLEXUS_TRY(sharing, decode_sharing_report(report.sharing, blobs.size()));
    joined.sharing.push_back(std::move(sharing));
  }
  if (all && worst) {
    copy_methods.measured = true;
    copy_methods.rates = *worst;
  }
  joined.copy_methods = copy_methods;
  return joined;
}

/// Ranks that cannot map the memory of others count as if NCCL_SHM_DISABLE were set for them.
void isolate(const std::vector<int>& isolated,
             std::span<const SharingReport> reports,
             CommSetup& setup) {
  auto infos = *setup.infos;
  for (const int rank : isolated) {
    infos[static_cast<size_t>(rank)].shm_disable = 1;
  }
  if (setup.rank == 0) {
    PLEXUS_WARN(
        "comm {:#x}: {} of {} use the network instead of shared memory with others of their "
        "host: {}",
        setup.group, isolated.size(), counted(infos.size(), "rank"),
        describe_isolation(reports, infos));
  }
  setup.infos = std::make_shared<const std::vector<PeerInfo>>(std::move(infos));
}

}  // namespace

Result<void> agree_on_same_host(const SetupContext& context,
                                CommSetup& setup,
                                const std::atomic<bool>* give_up) {
  if (count_pairs(*setup.infos).shared_memory == 0) {
    return ok();
  }
  PLEXUS_TRY(blobs, setup.exchange->all_gather(encode(context, setup), give_up));
  PLEXUS_TRY(joined, join(blobs, setup.config));
  setup.copy_methods = joined.copy_methods;
  const auto isolated = list_isolated(joined.sharing);
  if (!isolated.empty()) {
    isolate(isolated, joined.sharing, setup);
  }
  if (setup.rank == 0 && !joined.obstacle.empty()) {
    PLEXUS_INFO(kShm, "comm {:#x}: plain buffers go through slots ({})", setup.group,
                joined.obstacle);
  }
  return ok();
}

}  // namespace plexus
