// SPDX-License-Identifier: Apache-2.0
// The wire format and the handle of net-socket. Little-endian; both ends run the same version,
// which the handshake checks. Described in README.md, "Wire format".
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <type_traits>

#include "plugin-api/plexus_net.h"

#include "plugins/support/socket_interface.hpp"
#include "security/terms.hpp"

namespace plexus::net_socket {

static_assert(std::endian::native == std::endian::little, "the wire format is little-endian");

inline constexpr uint64_t kWireMagic = 0x34'4b'43'4f'53'58'4c'50;  // "PLXSOCK4"

/// In the 128-byte handle, which travels over the control plane and is as secret as that. Both
/// sides of a connection prove that they know `key`.
struct WireHandle {
  uint64_t magic;
  plugin::WireAddress address;
  security::Mode mode;
  std::array<uint8_t, 3> reserved;
  security::Key key;
};
static_assert(sizeof(WireHandle) == 4 * sizeof(uint64_t) + sizeof(security::Key) &&
              sizeof(WireHandle) <= PLEXUS_NET_HANDLE_BYTES);

/// What the connecting side says on every socket when both sides have proved themselves. When the
/// sockets of the connection are all there, the answer is kAccepted on each.
struct WireHello {
  uint64_t magic;
  uint64_t connection_id;  // random; equal on all sockets of one connection
  uint16_t socket_index;   // 0: the first socket; above: data sockets
  uint16_t socket_count;
  uint16_t threads;    // number of helper threads for the data sockets
  uint16_t timeout_s;  // the connecting side's PLEXUS_SOCKET_TIMEOUT_S
};
static_assert(sizeof(WireHello) == 3 * sizeof(uint64_t));
inline constexpr uint64_t kAccepted = ~kWireMagic;

/// Precedes each message on the first socket. With `parts` = 0 the payload follows; otherwise part
/// i, bytes [i * size / parts, (i + 1) * size / parts), is sent over data socket (first_part_socket
/// + i) % count.
struct WireHeader {
  uint64_t size_bytes;
  int32_t tag;
  uint16_t parts;
  uint16_t first_part_socket;
};
static_assert(sizeof(WireHeader) == 16);

static_assert(std::is_trivially_copyable_v<WireHandle> && std::is_trivially_copyable_v<WireHello> &&
              std::is_trivially_copyable_v<WireHeader>);

}  // namespace plexus::net_socket
