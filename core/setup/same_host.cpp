// SPDX-License-Identifier: Apache-2.0
#include "core/setup/same_host.hpp"

#include <algorithm>
#include <map>
#include <span>
#include <string>
#include <utility>

#include "core/base/log.hpp"
#include "core/os/process_memory.hpp"
#include "core/transport/transport_table.hpp"

namespace plexus {
namespace {

bool share_slots(const PeerInfo& a, const PeerInfo& b) {
  return !a.on_cuda() && !b.on_cuda() &&
         choose_transport({.mine = a, .peers = &b}) == TransportKind::kShm;
}

uint32_t choose_attach_bytes(const Config& config) {
  return config.attach_bytes >= 0 ? static_cast<uint32_t>(config.attach_bytes) : kNoAttach;
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

}  // namespace

Result<void> agree_on_same_host(CommSetup& setup, const std::atomic<bool>* give_up) {
  if (!any_shares_slots(*setup.infos)) {
    return ok();
  }
  PLEXUS_TRY(obstacles, setup.exchange->all_gather(find_obstacle(setup), give_up));
  std::string_view first;
  for (size_t rank = 0; rank < obstacles.size() && first.empty(); ++rank) {
    first = obstacles[rank];
  }
  if (first.empty()) {
    setup.attach_bytes_min = choose_attach_bytes(setup.config);
  }
  if (setup.rank == 0 && !first.empty()) {
    PLEXUS_INFO(kShm, "comm {:#x}: plain buffers go through slots ({})", setup.group, first);
  }
  return ok();
}

}  // namespace plexus
