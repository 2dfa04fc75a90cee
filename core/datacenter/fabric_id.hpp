// SPDX-License-Identifier: Apache-2.0
// Fabric ids as in NCCL's cross-DC branch: id = datacenter * NCCL_IB_FABRICID_MAXRAIL + rail, which
// the user sets in the third field of NCCL_IB_HCA. Newer NCCL releases have rail and plane in that
// field: PLEXUS_IB_HCA selects the meaning.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.hpp"
#include "core/datacenter/location.hpp"

namespace plexus {

inline constexpr uint64_t kFabricRailsDefault = uint64_t{1} << 62;
inline constexpr uint64_t kFabricIdMax = uint64_t{1} << 48;

struct FabricPlace {
  uint64_t datacenter;
  uint64_t rail;
  friend bool operator==(const FabricPlace&, const FabricPlace&) = default;
};

/// Requires `rails_max` > 0.
constexpr FabricPlace split_fabric_id(uint64_t id, uint64_t rails_max) {
  return {.datacenter = id / rails_max, .rail = id % rails_max};
}

/// Different rails are not connected; on the same rail the datacenters decide.
constexpr FabricAnswer::Level fabric_level(uint64_t from, uint64_t to, uint64_t rails_max) {
  const FabricPlace a = split_fabric_id(from, rails_max);
  const FabricPlace b = split_fabric_id(to, rails_max);
  if (a.rail != b.rail) {
    return FabricAnswer::Level::kDisconnected;
  }
  return a.datacenter == b.datacenter ? FabricAnswer::Level::kSame : FabricAnswer::Level::kOther;
}

/// Meaning of the third field of NCCL_IB_HCA.
enum class HcaSyntax : uint8_t { kRailAndPlane, kFabricId };

struct HcaEntry {
  std::string name;
  std::optional<int> port;            // absent: all ports
  std::optional<uint64_t> fabric_id;  // only with HcaSyntax::kFabricId
  std::optional<int> rail;            // only with HcaSyntax::kRailAndPlane
  std::optional<int> plane;
};

/// NCCL_IB_HCA: `[^][=]name[:port[:...]]`, separated by commas.
struct HcaList {
  bool excludes = false;
  bool exact = false;  // names are full names instead of prefixes
  std::vector<HcaEntry> entries;
  /// The first entry for this device; nullptr: none.
  [[nodiscard]] const HcaEntry* find(std::string_view name, int port) const;
};

/// kInvalidUsage: the entry and the cause.
Result<HcaList> parse_hca_list(std::string_view text, HcaSyntax syntax);

}  // namespace plexus
