// SPDX-License-Identifier: Apache-2.0
// A node's location, which it tells the other nodes, and the path between two datacenters.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.hpp"

namespace plexus {

/// The path from one datacenter to another; unknown properties are absent.
struct DatacenterPath {
  bool connected = false;
  std::optional<uint64_t> mbit_per_s;
  std::optional<uint64_t> latency_ns;  // one way
  std::optional<uint64_t> cost;        // any unit; smaller is better
  friend bool operator==(const DatacenterPath&, const DatacenterPath&) = default;
};

/// A link in a node's fabric file from the node's datacenter to another one.
struct DatacenterLink {
  std::string to;
  DatacenterPath path;
  friend bool operator==(const DatacenterLink&, const DatacenterLink&) = default;
};

inline constexpr size_t kDatacentersMax = 64;
inline constexpr size_t kDatacenterNameBytesMax = 32;
inline constexpr size_t kFabricIdsMax = 16;
/// Largest size of a node's location in the exchange.
inline constexpr size_t kLocationBytesMax = size_t{8} * 1024;

struct Location {
  bool scatter = true;                // NCCL_SCATTER_XDC; the first node's value counts
  std::string datacenter;             // from the fabric file; empty: the file does not name this
                                      // host
  std::vector<DatacenterLink> links;  // links of that datacenter, from the fabric file
  std::string net;                    // the net plugin that these ids are from; empty: the user's
                                      // settings
  std::vector<uint64_t> fabric_ids;   // distinct, ascending; reported by the network's devices
  friend bool operator==(const Location&, const Location&) = default;
};

std::string encode(const Location& location);
Result<Location> decode_location(std::string_view bytes);

/// What a network reports about the path between two fabric ids.
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
