// SPDX-License-Identifier: Apache-2.0
// What a node tells the others about where it stands, and the path between two datacenters.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.hpp"

namespace plexus {

/// The path from one datacenter to another; what is not known is absent.
struct DatacenterPath {
  bool connected = false;
  std::optional<uint64_t> mbit_per_s;
  std::optional<uint64_t> latency_ns;  // one way
  std::optional<uint64_t> cost;        // any unit, smaller is better
  friend bool operator==(const DatacenterPath&, const DatacenterPath&) = default;
};

/// A link that a node's fabric file has from the node's datacenter to another.
struct DatacenterLink {
  std::string to;
  DatacenterPath path;
  friend bool operator==(const DatacenterLink&, const DatacenterLink&) = default;
};

inline constexpr size_t kDatacentersMax = 64;
inline constexpr size_t kDatacenterNameBytesMax = 32;
inline constexpr size_t kFabricIdsMax = 16;
/// Most bytes that a node's location takes in the exchange.
inline constexpr size_t kLocationBytesMax = size_t{8} * 1024;

struct Location {
  bool scatter = true;                // NCCL_SCATTER_XDC; that of the first node counts
  std::string datacenter;             // by the fabric file; empty: it says nothing of this host
  std::vector<DatacenterLink> links;  // of that datacenter, by the fabric file
  std::string net;                    // whose ids these are; empty: the user's
  std::vector<uint64_t> fabric_ids;   // distinct, rising, that the network's devices say
  friend bool operator==(const Location&, const Location&) = default;
};

std::string encode(const Location& location);
Result<Location> decode_location(std::string_view bytes);

/// What a network says of the path between two fabric ids.
struct FabricAnswer {
  uint64_t from = 0;
  uint64_t to = 0;
  enum class Level : uint32_t { kSame, kOther, kDisconnected, kUnknown } level = Level::kUnknown;
  DatacenterPath path;
  friend bool operator==(const FabricAnswer&, const FabricAnswer&) = default;
};

std::string encode(const std::vector<FabricAnswer>& answers);
Result<std::vector<FabricAnswer>> decode_answers(std::string_view bytes);

}  // namespace plexus
