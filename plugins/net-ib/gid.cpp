// SPDX-License-Identifier: Apache-2.0
#include "plugins/net-ib/gid.hpp"

#include <algorithm>
#include <arpa/inet.h>
#include <charconv>
#include <cstring>
#include <netinet/in.h>

namespace plexus::net_ib {
namespace {

using plugin::fail;
using plugin::Result;

constexpr std::array<uint8_t, 12> kIpv4Prefix = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
constexpr uint32_t kIpv4PrefixBits = 96;
constexpr uint32_t kGidBits = 128;
constexpr uint32_t kByteBits = 8;

/// Larger is better.
int rank_of_gid(const Gid& gid, const GidWish& wish) {
  const GidKind wanted = wish.roce_version == 1 ? GidKind::kRoceV1 : GidKind::kRoceV2;
  constexpr int kVersion = 4;
  constexpr int kFamily = 2;
  return (gid.kind == wanted ? kVersion : 0) + (gid.is_ipv4() == wish.prefers_ipv4 ? kFamily : 0) +
         (gid.is_link_local() ? 0 : 1);
}

}  // namespace

bool Gid::is_ipv4() const noexcept {
  return std::equal(kIpv4Prefix.begin(), kIpv4Prefix.end(), bytes.begin());
}

bool Gid::is_link_local() const noexcept {
  constexpr uint8_t kFirst = 0xfe;
  constexpr uint8_t kSecond = 0x80;
  return bytes[0] == kFirst && bytes[1] == kSecond;
}

std::string Gid::text() const {
  std::array<char, INET6_ADDRSTRLEN> out{};
  if (is_ipv4()) {
    ::inet_ntop(AF_INET, bytes.data() + kIpv4Prefix.size(), out.data(), out.size());
  } else {
    ::inet_ntop(AF_INET6, bytes.data(), out.data(), out.size());
  }
  return out.data();
}

Result<AddressRange> AddressRange::parse(std::string_view text) {
  AddressRange range;
  range.text = text;
  if (text.empty()) {
    return range;
  }
  const size_t slash = text.find('/');
  const std::string address(text.substr(0, slash));
  uint32_t bits = 0;
  uint32_t most = 0;
  if (::inet_pton(AF_INET, address.c_str(), range.bytes.data() + kIpv4Prefix.size()) == 1) {
    std::copy(kIpv4Prefix.begin(), kIpv4Prefix.end(), range.bytes.begin());
    most = kGidBits - kIpv4PrefixBits;
    range.bits = kIpv4PrefixBits;
  } else if (::inet_pton(AF_INET6, address.c_str(), range.bytes.data()) == 1) {
    most = kGidBits;
  }
  const std::string_view length = slash == std::string_view::npos ? "" : text.substr(slash + 1);
  const auto [end, error] = std::from_chars(length.data(), length.data() + length.size(), bits);
  if (most == 0 || length.empty() || error != std::errc{} || end != length.data() + length.size() ||
      bits > most) {
    return fail(PLEXUS_INVALID_USAGE,
                "NCCL_IB_ADDR_RANGE={} is not an address range such as 10.0.0.0/8 or fd00::/16; "
                "correct or unset it",
                text);
  }
  range.bits += bits;
  return range;
}

bool AddressRange::contains(const GidBytes& address) const noexcept {
  const size_t whole = bits / kByteBits;
  if (!std::equal(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(whole),
                  address.begin())) {
    return false;
  }
  const uint32_t rest = bits % kByteBits;
  constexpr uint32_t kByteMask = 0xff;
  const uint32_t mask = kByteMask << (kByteBits - rest) & kByteMask;
  return rest == 0 || (bytes[whole] & mask) == (address[whole] & mask);
}

Result<Gid> choose_gid(std::span<const Gid> gids, const GidWish& wish, std::string_view where) {
  if (wish.index >= 0) {
    const auto found = std::find_if(gids.begin(), gids.end(), [&](const Gid& each) {
      return each.index == static_cast<uint32_t>(wish.index);
    });
    if (found == gids.end()) {
      return fail(PLEXUS_INVALID_USAGE,
                  "NCCL_IB_GID_INDEX={}, but {} has no address at that index; `ibv_devinfo -v` "
                  "lists them",
                  wish.index, where);
    }
    return *found;
  }
  const Gid* best = nullptr;
  for (const Gid& gid : gids) {
    if (!wish.range.contains(gid.bytes)) {
      continue;
    }
    if (best == nullptr || rank_of_gid(gid, wish) > rank_of_gid(*best, wish)) {
      best = &gid;
    }
  }
  if (best == nullptr) {
    return fail(PLEXUS_SYSTEM_ERROR,
                "{} has no address{}{}; give its network interface one, or choose other devices "
                "with NCCL_IB_HCA",
                where, wish.range.text.empty() ? "" : " in NCCL_IB_ADDR_RANGE=", wish.range.text);
  }
  return *best;
}

}  // namespace plexus::net_ib
