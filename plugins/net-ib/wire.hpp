// SPDX-License-Identifier: Apache-2.0
// What the two ends of a connection tell each other: the handle, the handshake and the control
// messages over TCP, the posted receives that the receiver writes into the sender's memory, and the
// immediate data of a message. Little-endian; both ends run the same version, which the handshake
// checks. docs/net-ib.md, "On the wire".
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>

#include "plugin-api/plexus_net.h"

#include "plugins/net-ib/gid.hpp"
#include "plugins/net-ib/settings.hpp"
#include "plugins/support/socket_interface.hpp"
#include "security/terms.hpp"

namespace plexus::net_ib {

static_assert(std::endian::native == std::endian::little, "the wire format is little-endian");

inline constexpr uint64_t kWireMagic = 0x31'30'42'49'4e'58'4c'50;  // "PLXNIB01"

/// Receives in flight per connection, and sends per buffer of these receives.
inline constexpr uint32_t kRequests = 32;
inline constexpr uint32_t kSendRequests = kRequests * PLEXUS_NET_RECVS_MAX;
/// Longest message: its size is told in 32 bits.
inline constexpr uint64_t kMessageBytesMax = uint64_t{1} << 30;

// ---- the handshake and control messages, over TCP ----

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

/// One queue pair. `ece`: enhanced connection establishment (ibv_ece); zero without it.
struct WireQp {
  uint32_t number;
  uint32_t sequence;  // first packet's number
  std::array<uint32_t, 3> ece;
};

/// A port of one end, and the queue pairs that the connection has on it.
struct WireRail {
  GidBytes gid;
  uint16_t lid;
  uint8_t link_layer;  // IBV_LINK_LAYER_*
  uint8_t mtu;         // enum ibv_mtu
  uint8_t port;
  std::array<uint8_t, 3> reserved;
  uint32_t area_rkey;  // of this end's Area
  std::array<char, 20> name;
  WireQp control;
  std::array<WireQp, kQpsMax> data;
};

/// Longest name of a host; what is longer is cut.
inline constexpr size_t kHostBytes = 40;

/// What both sides say when they have proved themselves; the listener's answers the caller's.
struct WireHello {
  uint64_t magic;
  uint64_t area_address;  // of this end's Area
  uint16_t rails;
  uint16_t qps;  // for data, on each rail
  uint32_t reserved;
  std::array<char, kHostBytes> host;
  std::array<WireRail, kRailsMax> rail;
};

enum class ControlType : uint32_t {
  kReady = 1,       // caller: its queue pairs can receive
  kFailed = 2,      // either: the connection has failed, for the reason in `text`
  kRailDown = 3,    // either: its queue pairs of `rail` have stopped; the other side stops its own.
                    // The receiver's `done` says what is here: the rest has to be sent again
  kRailOffer = 4,   // caller: new queue pairs for a lost rail, in `info`
  kRailAnswer = 5,  // listener: its own ones, connected
  kRailRefused = 6,  // listener: the rail does not work here yet
  kRailUp = 7,       // caller: the rail works in this direction
  kBye = 8,          // either: it closes; `done` says what it knows to be complete
};
inline constexpr uint32_t kControlTypeMax = 8;

inline constexpr uint32_t kPartsMax = 32;  // of a message

/// With kBye: a receiver closes as soon as it has what it wants, when the last acknowledgement may
/// still be on its way; a sender when all is acknowledged, when the receiver may not have seen it.
/// With kRailDown of a receiver: acknowledgements are lost with a rail, and what is here must not
/// be written again, because the receiver's host may have the buffer back.
struct WireDone {
  uint64_t messages;  // sender: complete ones
  // receiver, for each request: the order of the receive that used it last, and for each of its
  // buffers a bit per part that is here, all bits once the message is complete
  std::array<uint64_t, kRequests> order;
  std::array<std::array<uint32_t, PLEXUS_NET_RECVS_MAX>, kRequests> parts;
};

struct WireControl {
  uint32_t type;
  uint32_t rail;
  uint32_t generation;  // of the rail: counts its returns
  int32_t code;         // of kFailed
  std::array<char, 256> text;
  union {
    WireDone done;  // first, because it is the longer one, so that all is initialised
    WireRail info;
  };
};
static_assert(sizeof(WireDone) >= sizeof(WireRail));

static_assert(std::is_trivially_copyable_v<WireHandle> && std::is_trivially_copyable_v<WireHello> &&
              std::is_trivially_copyable_v<WireControl>);

/// Checks of data from outside, of any content. An Error says what is wrong with it.
[[nodiscard]] Result<WireHandle> read_handle(const plexus_net_handle_t& handle);
[[nodiscard]] Result<WireHello> read_hello(std::span<const std::byte> bytes);
[[nodiscard]] Result<WireControl> read_control(std::span<const std::byte> bytes);
/// A peer's text up to its zero or the end, with unprintable characters replaced.
[[nodiscard]] std::string readable(std::span<const char> text);
/// Cuts what does not fit; the target stays zero-terminated.
void write_text(std::span<char> target, const std::string& text);

// ---- memory that the other end writes ----

/// A buffer of a posted receive. The receiver writes it into the sender's Area. `order` is written
/// last and says that the entry is valid: it is 1 for the first receive of the connection.
struct alignas(64) PostedBuffer {
  uint64_t address;
  uint64_t size_bytes;
  std::array<uint32_t, kRailsMax> rkeys;
  int32_t tag;
  uint16_t request;  // the receiver's number of it, below kRequests
  uint16_t count;    // buffers of the receive
  uint64_t round;    // of the request's use
  uint64_t order;
};
static_assert(sizeof(PostedBuffer) == 64);

/// The ring of posted receives has more entries than there can be receives in flight, so that an
/// entry is read before it is written again: the sender reads in order, and at most kRequests
/// receives wait for a first message.
inline constexpr uint32_t kPostedRing = 2 * kRequests;
using PostedGroup = std::array<PostedBuffer, PLEXUS_NET_RECVS_MAX>;

/// Registered memory of an end. The peer writes only to it and to posted buffers.
struct Area {
  std::array<PostedGroup, kPostedRing> posted;  // sender: written by the peer; receiver: the source
  // receiver: sizes of long messages, written by the peer; sender: the source
  std::array<std::array<uint64_t, PLEXUS_NET_RECVS_MAX>, kRequests> sizes;
  uint64_t flushed;  // receiver: where the reads of flushes go
};

// ---- immediate data ----

/// Announces the last part of a message, or that one of its parts is complete. A short message is
/// one part, and its size is here; the size of a longer one is written to Area::sizes before.
struct Immediate {
  uint32_t request = 0;  // below kRequests
  uint32_t buffer = 0;   // below PLEXUS_NET_RECVS_MAX
  uint32_t round = 0;    // of the request's use, modulo kImmediateRounds
  bool is_short = true;
  uint32_t size_bytes = 0;  // short
  uint32_t part = 0;        // long
  uint32_t parts = 1;       // long

  [[nodiscard]] uint32_t pack() const noexcept;
  /// Accepts any bits.
  [[nodiscard]] static Immediate unpack(uint32_t bits) noexcept;
};
inline constexpr uint32_t kImmediateRounds = 32;
inline constexpr uint64_t kShortBytesMax = (uint64_t{1} << 18) - 1;

// ---- striping ----

struct Part {
  uint64_t begin = 0;
  uint64_t size_bytes = 0;
};
/// Number of parts of a message over `lanes` queue pairs (at least 1), none but the last shorter
/// than `part_bytes_min`.
[[nodiscard]] uint32_t count_parts(uint64_t size_bytes,
                                   uint32_t lanes,
                                   uint64_t part_bytes_min) noexcept;
/// The bytes of part `index` of `count`; the inner bounds are aligned.
[[nodiscard]] Part cut_part(uint64_t size_bytes, uint32_t count, uint32_t index) noexcept;

}  // namespace plexus::net_ib
