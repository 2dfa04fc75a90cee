// SPDX-License-Identifier: Apache-2.0
// Fabric ids as NCCL's cross-dc branch has them: id = datacenter * NCCL_IB_FABRICID_MAXRAIL +
// rail, given by hand in the third field of NCCL_IB_HCA. Newer releases have rail and plane there
// instead: PLEXUS_IB_HCA says which of the two a list means.
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

/// `rails_max` > 0.
constexpr FabricPlace split_fabric_id(uint64_t id, uint64_t rails_max) {
  return {.datacenter = id / rails_max, .rail = id % rails_max};
}

/// Different rails do not reach each other; else the datacenters decide.
constexpr FabricAnswer::Level fabric_level(uint64_t from, uint64_t to, uint64_t rails_max) {
  const FabricPlace a = split_fabric_id(from, rails_max);
  const FabricPlace b = split_fabric_id(to, rails_max);
  if (a.rail != b.rail) {
    return FabricAnswer::Level::kDisconnected;
  }
  return a.datacenter == b.datacenter ? FabricAnswer::Level::kSame : FabricAnswer::Level::kOther;
}

/// What the third field of NCCL_IB_HCA means.
enum class HcaSyntax : uint8_t { kRailAndPlane, kFabricId };

struct HcaEntry {
  std::string name;
  std::optional<int> port;            // absent: all
  std::optional<uint64_t> fabric_id;  // HcaSyntax::kFabricId
  std::optional<int> rail;            // HcaSyntax::kRailAndPlane
  std::optional<int> plane;
};

/// NCCL_IB_HCA: `[^][=]name[:port[:...]]`, separated by commas.
struct HcaList {
  bool excludes = false;
  bool exact = false;  // names are whole names, not their beginnings
  std::vector<HcaEntry> entries;
  /// The first entry for this device; nullptr: none.
  [[nodiscard]] const HcaEntry* find(std::string_view name, int port) const;
};

/// kInvalidUsage names the entry and what is wrong with it.
Result<HcaList> parse_hca_list(std::string_view text, HcaSyntax syntax);

}  // namespace plexus
