// SPDX-License-Identifier: Apache-2.0
// What a node tells the others about where it stands, and the way between two data centres.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.hpp"

namespace plexus {

/// The way from one data centre to another; what is not known is absent.
struct CentrePath {
  bool connected = false;
  std::optional<uint64_t> mbit_per_s;
  std::optional<uint64_t> latency_ns;  // one way
  std::optional<uint64_t> cost;        // any unit, smaller is better
  friend bool operator==(const CentrePath&, const CentrePath&) = default;
};

/// A link that a node's fabric file has from the node's data centre to another.
struct CentreLink {
  std::string to;
  CentrePath path;
  friend bool operator==(const CentreLink&, const CentreLink&) = default;
};

inline constexpr size_t kCentresMax = 64;
inline constexpr size_t kCentreNameBytesMax = 32;
inline constexpr size_t kFabricIdsMax = 16;
/// Most bytes that a node's claim takes in the exchange.
inline constexpr size_t kClaimBytesMax = size_t{8} * 1024;

struct CentreClaim {
  bool scatter = true;               // NCCL_SCATTER_XDC; that of the first node counts
  std::string centre;                // by the fabric file; empty: it says nothing of this host
  std::vector<CentreLink> links;     // of that data centre, by the fabric file
  std::string net;                   // whose ids these are; empty: the user's
  std::vector<uint64_t> fabric_ids;  // distinct, rising, that the network's devices say
  friend bool operator==(const CentreClaim&, const CentreClaim&) = default;
};

std::string encode(const CentreClaim& claim);
Result<CentreClaim> decode_claim(std::string_view bytes);

/// What a network says of the way between two fabric ids.
struct FabricAnswer {
  uint64_t from = 0;
  uint64_t to = 0;
  enum class Level : uint32_t { kSame, kOther, kDisconnected, kUnknown } level = Level::kUnknown;
  CentrePath path;
  friend bool operator==(const FabricAnswer&, const FabricAnswer&) = default;
};

std::string encode(const std::vector<FabricAnswer>& answers);
Result<std::vector<FabricAnswer>> decode_answers(std::string_view bytes);

}  // namespace plexus
