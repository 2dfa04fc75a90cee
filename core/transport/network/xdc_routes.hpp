// SPDX-License-Identifier: Apache-2.0
// What the cross-DC connections of one rank know of the links: a connection that goes by another
// path than the one it prefers has lost those before it. From that follows how much of the way to
// each datacenter is left to this rank, and by which path a new connection begins.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/transport/connection.hpp"
#include "core/transport/network/net_set.hpp"

namespace plexus {

inline constexpr uint32_t kWholeShare = 1000;  // permille

/// Threads: one at a time, as the ends that share it.
class XdcRoutes {
 public:
  /// `changed`: `share` of the way to a datacenter is left, in permille of the rank's devices that
  /// lead there.
  using Changed = std::function<void(uint32_t datacenter, uint32_t share)>;
  explicit XdcRoutes(Changed changed = {}) : changed_(std::move(changed)) {}

  /// The connection `key` to `datacenter` is open by paths[index].
  void use(const ConnectionKey& key,
           uint32_t datacenter,
           std::span<const NetSet::Path> paths,
           size_t index);
  /// The first of `paths` that no connection to `datacenter` has lost; 0: all are.
  [[nodiscard]] size_t first_open(uint32_t datacenter, std::span<const NetSet::Path> paths) const;

 private:
  using Device = std::pair<const NetContext*, uint32_t>;
  struct Use {
    std::set<std::string> lost;  // routes
    std::set<Device> devices_lost;
    std::set<Device> devices;
  };
  [[nodiscard]] static uint32_t share_of(const std::map<ConnectionKey, Use>& uses);

  Changed changed_;
  std::map<uint32_t, std::map<ConnectionKey, Use>> uses_;  // by datacenter
};

}  // namespace plexus
