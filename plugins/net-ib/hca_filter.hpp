// SPDX-License-Identifier: Apache-2.0
// NCCL_IB_HCA: `[^][=]name[:port[:...]]`, separated by commas. `^` excludes what matches, `=` means
// full names instead of prefixes, no port means all of them. What follows the port is a rail and a
// plane, as in NCCL's releases, or with PLEXUS_IB_HCA=fabricid a fabric's id, as in its cross-DC
// branch. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "plugins/support/result.hpp"

namespace plexus::net_ib {

enum class HcaSyntax : uint8_t { kRail, kFabricId };

struct HcaEntry {
  std::string name;
  int32_t port = -1;   // -1: any
  int32_t rail = -1;   // -1: none
  int32_t plane = -1;  // -1: none
  std::optional<uint64_t> fabric_id;
};

class HcaFilter {
 public:
  /// Without text: all devices.
  HcaFilter() = default;
  [[nodiscard]] static plugin::Result<HcaFilter> parse(std::string_view text, HcaSyntax syntax);

  /// The first entry that matches, for its ids; nullopt: the port is not to be used. Ports that are
  /// used without an entry of their own get one without ids.
  [[nodiscard]] std::optional<HcaEntry> find(std::string_view name, uint32_t port) const;
  [[nodiscard]] bool is_empty() const noexcept { return entries_.empty(); }

 private:
  bool excludes_ = false;
  bool is_exact_ = false;
  std::vector<HcaEntry> entries_;
};

}  // namespace plexus::net_ib
