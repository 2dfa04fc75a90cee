// SPDX-License-Identifier: Apache-2.0
#include "core/transport/network/xdc_routes.hpp"

#include <algorithm>

#include "guest/assert.hpp"

namespace plexus {

void XdcRoutes::use(const ConnectionKey& key,
                    uint32_t datacenter,
                    std::span<const NetSet::Path> paths,
                    size_t index) {
  PLEXUS_DCHECK(index < paths.size(), index, paths.size());
  auto& uses = uses_[datacenter];
  const uint32_t before = share_of(uses);
  Use use;
  for (const NetSet::Path& path : paths) {
    use.devices.emplace(path.context, path.device);
  }
  for (const NetSet::Path& path : paths.first(index)) {
    use.lost.insert(path.route);
    use.devices_lost.emplace(path.context, path.device);
  }
  use.devices_lost.erase({paths[index].context, paths[index].device});
  uses[key] = std::move(use);
  if (const uint32_t share = share_of(uses); changed_ && share != before) {
    changed_(datacenter, share);
  }
}

/// A device that one connection has lost counts as lost although another may use it: links to some
/// hosts of the datacenter are as slow as that.
uint32_t XdcRoutes::share_of(const std::map<ConnectionKey, Use>& uses) {
  std::set<Device> devices;
  std::set<Device> lost;
  for (const auto& [key, use] : uses) {
    devices.insert(use.devices.begin(), use.devices.end());
    lost.insert(use.devices_lost.begin(), use.devices_lost.end());
  }
  if (lost.empty()) {
    return kWholeShare;
  }
  PLEXUS_DCHECK(lost.size() <= devices.size(), lost.size(), devices.size());
  const size_t left = std::max<size_t>(devices.size() - lost.size(), 1);  // something is in use
  return static_cast<uint32_t>(kWholeShare * left / devices.size());
}

size_t XdcRoutes::first_open(uint32_t datacenter, std::span<const NetSet::Path> paths) const {
  const auto uses = uses_.find(datacenter);
  if (uses == uses_.end()) {
    return 0;
  }
  for (size_t index = 0; index < paths.size(); ++index) {
    const auto lost = [&](const auto& use) { return use.second.lost.count(paths[index].route); };
    if (std::none_of(uses->second.begin(), uses->second.end(), lost)) {
      return index;
    }
  }
  return 0;
}

}  // namespace plexus
