// SPDX-License-Identifier: Apache-2.0
#include "core/setup/same_host.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "core/base/bytes.hpp"
#include "core/base/log.hpp"
#include "core/os/process_memory.hpp"
#include "core/transport/transport_table.hpp"

namespace plexus {
namespace {

bool share_slots(const PeerInfo& a, const PeerInfo& b) {
  return !a.on_cuda() && !b.on_cuda() &&
         choose_transport({.mine = a, .peers = &b}) == TransportKind::kShm;
}

/// Whether two processes of a host may have ranks that share slots.
bool any_shares_slots(std::span<const PeerInfo> infos) {
  std::map<std::pair<uint64_t, uint64_t>, uint64_t> processes;  // of a host: the first
  return std::any_of(infos.begin(), infos.end(), [&](const PeerInfo& info) {
    const std::pair host{info.host_hash, info.pid_namespace};
    return !info.on_cuda() && info.shm_disable == 0 &&
           processes.try_emplace(host, info.process_id).first->second != info.process_id;
  });
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

// ---- a rank's message: whether it leads its host, its host's rates (all 0: not known), and why it
// does not read its peers' memory (empty: it does) ----

struct Told {
  uint8_t leads = 0;
  HostRates rates;
  std::string_view obstacle;
};

std::string encode(const SetupContext& context, const CommSetup& setup) {
  ByteWriter writer;
  const bool leads = leads_host(setup);
  writer.put<uint8_t>(leads ? 1 : 0);
  if (leads) {
    writer.put(context.rates->find(setup.config.rates_file).value_or(HostRates{}));
  }
  writer.put_bytes(find_obstacle(setup));
  return writer.take();
}

Result<Told> decode(std::string_view bytes) {
  ByteReader reader(bytes);
  Told told;
  told.leads = reader.take<uint8_t>();
  if (told.leads != 0) {
    told.rates = reader.take<HostRates>();
  }
  if (reader.broken()) {
    return fail(Code::kRemoteError,
                "what another rank says of its host is malformed: use the same version of Plexus "
                "on all ranks");
  }
  if (told.rates != HostRates{} && !is_plausible(told.rates)) {
    PLEXUS_INFO(kTuning, "the rates of another host cannot be true: built-in rates are used");
    told.rates = {};
  }
  told.obstacle = reader.rest();
  return told;
}

/// The worst of all hosts; not measured when one of them is not.
Result<HostWays> join(const Gathered& blobs, const Config& config, std::string& obstacle) {
  HostWays ways{.attach = true, .attach_bytes = config.attach_bytes};
  std::optional<HostRates> worst;
  bool all = true;
  for (size_t rank = 0; rank < blobs.size(); ++rank) {
    PLEXUS_TRY(told, decode(blobs[rank]));
    if (told.leads != 0) {
      all = all && told.rates != HostRates{};
      worst = worst ? worst_of(*worst, told.rates) : told.rates;
    }
    if (!told.obstacle.empty() && ways.attach) {
      ways.attach = false;
      obstacle = told.obstacle;
    }
  }
  if (all && worst) {
    ways.measured = true;
    ways.rates = *worst;
  }
  return ways;
}

}  // namespace

Result<void> agree_on_same_host(const SetupContext& context,
                                CommSetup& setup,
                                const std::atomic<bool>* give_up) {
  if (!any_shares_slots(*setup.infos)) {
    return ok();
  }
  PLEXUS_TRY(blobs, setup.exchange->all_gather(encode(context, setup), give_up));
  std::string obstacle;
  PLEXUS_TRY(ways, join(blobs, setup.config, obstacle));
  setup.ways = ways;
  if (setup.rank == 0 && !obstacle.empty()) {
    PLEXUS_INFO(kShm, "comm {:#x}: plain buffers go through slots ({})", setup.group, obstacle);
  }
  return ok();
}

}  // namespace plexus
