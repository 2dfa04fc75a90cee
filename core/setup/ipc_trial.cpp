// SPDX-License-Identifier: Apache-2.0
#include "core/setup/ipc_trial.hpp"

#include <algorithm>
#include <cstring>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/base/log.hpp"
#include "core/base/text.hpp"
#include "core/device/device_memory.hpp"
#include "core/transport/transport_table.hpp"

namespace plexus {
namespace {

constexpr size_t kWhyBytesMax = 512;

bool uses_ipc(const PeerInfo& a, const PeerInfo& b) {
  return a.on_cuda() && b.on_cuda() &&
         choose_transport({.mine = a, .peers = &b}) == TransportKind::kP2p;
}

bool any_uses_ipc(std::span<const PeerInfo> infos) {
  for (size_t a = 0; a < infos.size(); ++a) {
    for (size_t b = a + 1; infos[a].on_cuda() && b < infos.size(); ++b) {
      if (uses_ipc(infos[a], infos[b])) {
        return true;
      }
    }
  }
  return false;
}

/// Memory for the others to open, and its handle.
Result<std::pair<DeviceMemory, MemoryHandle>> show(DeviceRuntime& devices, int device) {
  PLEXUS_TRY(memory, allocate_lasting(devices, device, kExportGranule));
  PLEXUS_TRY(handle, devices.export_memory(device, memory.get()));
  return std::pair(std::move(memory), handle);
}

/// Why this rank cannot open what the others show; "": it can. One of each process and device.
std::string try_to_open(DeviceRuntime& devices, const CommSetup& setup, const Gathered& shown) {
  std::set<std::pair<uint64_t, uint32_t>> tried;
  for (size_t peer = 0; peer < shown.size(); ++peer) {
    const PeerInfo& info = (*setup.infos)[peer];
    if (!uses_ipc(setup.mine(), info) || shown[peer].size() != sizeof(MemoryHandle) ||
        !tried.emplace(info.process_id, hash_of_device(info.device_uuid)).second) {
      continue;
    }
    MemoryHandle handle;
    std::memcpy(handle.bytes.data(), shown[peer].data(), handle.bytes.size());
    const auto opened = import_memory(devices, setup.mine().device, handle);
    if (opened.has_error()) {
      return fmt::format("{} cannot open memory of {}: {}", describe_rank(setup.rank, setup.mine()),
                         describe_rank(static_cast<int>(peer), info), opened.error().message());
    }
  }
  return "";
}

}  // namespace

Result<void> try_ipc(DeviceRuntime* devices, CommSetup& setup, const std::atomic<bool>* give_up) {
  if (!any_uses_ipc(*setup.infos)) {
    return ok();
  }
  std::string handle;
  std::string why;
  DeviceMemory memory;
  const PeerInfo& mine = setup.mine();
  const bool takes_part = std::any_of(setup.infos->begin(), setup.infos->end(),
                                      [&](const PeerInfo& info) { return uses_ipc(mine, info); });
  if (takes_part) {
    auto made = show(*devices, mine.device);
    if (made.has_error()) {
      why = fmt::format("{} cannot export memory: {}", describe_rank(setup.rank, mine),
                        made.error().message());
    } else {
      memory = std::move(made.value().first);
      const MemoryHandle& shown = made.value().second;
      handle.assign(reinterpret_cast<const char*>(shown.bytes.data()), shown.bytes.size());
    }
  }
  PLEXUS_TRY(shown, setup.exchange->all_gather(handle, give_up));
  if (takes_part && why.empty()) {
    why = try_to_open(*devices, setup, shown);
  }
  PLEXUS_TRY(reasons, setup.exchange->all_gather(why.substr(0, kWhyBytesMax), give_up));
  auto infos = *setup.infos;
  std::string first;
  for (size_t rank = 0; rank < reasons.size(); ++rank) {
    for (PeerInfo& info : infos) {
      const bool is_there = info.host_hash == infos[rank].host_hash;
      info.ipc_disable = !reasons[rank].empty() && is_there ? 1 : info.ipc_disable;
    }
    if (first.empty()) {
      first = printable(reasons[rank]);
    }
  }
  if (!first.empty()) {
    if (setup.rank == 0) {
      PLEXUS_INFO(kP2p, "comm {:#x}: ranks of a host share pinned memory, CUDA IPC is refused: {}",
                  setup.group, first);
    }
    setup.infos = std::make_shared<const std::vector<PeerInfo>>(std::move(infos));
  }
  return ok();
}

}  // namespace plexus
