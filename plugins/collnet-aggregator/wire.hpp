// SPDX-License-Identifier: Apache-2.0
// The messages between the members of a group and an aggregator over TCP, and the contents of a
// handle. Little-endian; both ends run the same version, which the magic numbers check.
//
// A connection begins as security/handshake.hpp says; the key is that of the server. Then a member
// sends one kHello frame, whose payload is a WireHello. When all members of the group have
// joined, the aggregator sends each a kReady frame. A member then sends kReduce frames with the
// elements of its part as payload, numbered from 0, and receives as many kReduce frames with the
// results in the same order. A kError frame (payload: one sentence) ends the connection.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <type_traits>

#include "plugin-api/plexus_collnet.h"

#include "security/terms.hpp"

namespace plexus::aggregator {

static_assert(std::endian::native == std::endian::little, "the wire format is little-endian");

inline constexpr uint32_t kFrameMagic = 0x32474c50;                  // "PLG2"
inline constexpr uint64_t kHandleMagic = 0x32'52'47'47'41'58'4c'50;  // "PLXAGGR2"

/// Limits for what a peer may send.
inline constexpr uint32_t kMessageBytesMax = uint32_t{4} << 20;
inline constexpr uint32_t kMembersMax = 4096;
inline constexpr uint32_t kRequestsMax = 16;  // reductions that a member may have in flight
inline constexpr uint32_t kErrorBytesMax = 512;

/// Tells the groups of a server apart: a fingerprint of the secret in member 0's handle.
using GroupId = std::array<uint8_t, 32>;

/// In the 128-byte handle: the address at which this member could host. Member 0's is used. Handles
/// travel over the control plane and are as secret as that is.
struct WireHandle {
  uint64_t magic;
  uint16_t family;  // 4 or 6
  uint16_t port;
  uint32_t scope;                   // for a link-local IPv6 address
  std::array<uint8_t, 16> address;  // network order; IPv4 in the first four
  security::Mode mode;
  std::array<uint8_t, 7> reserved;
  security::Key secret;
};
static_assert(sizeof(WireHandle) == 9 * sizeof(uint64_t) &&
              sizeof(WireHandle) <= PLEXUS_NET_HANDLE_BYTES);

enum class FrameKind : uint16_t { kHello = 1, kReady = 2, kReduce = 3, kError = 4 };

struct WireFrame {
  uint32_t magic = kFrameMagic;
  FrameKind kind = FrameKind::kError;
  uint8_t type = 0;         // PLEXUS_TYPE_*, of kReduce
  uint8_t op = 0;           // PLEXUS_REDUCE_*
  uint32_t size_bytes = 0;  // size of the payload after the frame
  uint32_t reserved = 0;
  uint64_t number = 0;  // number of the reduction
};
static_assert(sizeof(WireFrame) == 3 * sizeof(uint64_t));

struct WireHello {
  uint32_t members;
  uint32_t member;
  GroupId group;
};
static_assert(sizeof(WireHello) == 5 * sizeof(uint64_t));

static_assert(std::is_trivially_copyable_v<WireHandle> && std::is_trivially_copyable_v<WireFrame> &&
              std::is_trivially_copyable_v<WireHello>);

}  // namespace plexus::aggregator
