// SPDX-License-Identifier: Apache-2.0
// Which of a RoCE port's addresses (GIDs) a connection uses: the one that NCCL_IB_GID_INDEX names,
// else the best by RoCE version, address family and subnet. Pure.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "plugins/support/result.hpp"

namespace plexus::net_ib {

using GidBytes = std::array<uint8_t, 16>;

enum class GidKind : uint8_t { kInfiniBand, kRoceV1, kRoceV2 };

/// One entry of a port's table that is not empty.
struct Gid {
  uint32_t index = 0;
  GidKind kind = GidKind::kInfiniBand;
  GidBytes bytes{};

  [[nodiscard]] bool is_ipv4() const noexcept;
  [[nodiscard]] bool is_link_local() const noexcept;
  /// "10.77.0.10", "fe80::1".
  [[nodiscard]] std::string text() const;
};

/// An address range, "10.0.0.0/8" or "fd00::/16"; without bits any address is in it.
struct AddressRange {
  std::string text;
  GidBytes bytes{};  // IPv4 as ::ffff:a.b.c.d
  uint32_t bits = 0;

  [[nodiscard]] static plugin::Result<AddressRange> parse(std::string_view text);
  [[nodiscard]] bool contains(const GidBytes& address) const noexcept;
};

struct GidWish {
  int32_t index = -1;         // NCCL_IB_GID_INDEX; -1: choose
  bool prefers_ipv4 = true;   // NCCL_IB_ADDR_FAMILY
  AddressRange range;         // NCCL_IB_ADDR_RANGE
  uint32_t roce_version = 2;  // NCCL_IB_ROCE_VERSION_NUM
};

/// `where`: the port, for error messages.
[[nodiscard]] plugin::Result<Gid> choose_gid(std::span<const Gid> gids,
                                             const GidWish& wish,
                                             std::string_view where);

}  // namespace plexus::net_ib
