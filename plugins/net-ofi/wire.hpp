// SPDX-License-Identifier: Apache-2.0
// The wire format, tags and handle of net-ofi, and the checks of what peers send. Little-endian;
// both ends run the same version, which the handshake checks. See README.md, "Wire".
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include "plugin-api/plexus_net.h"

#include "plugins/net-ofi/settings.hpp"
#include "security/terms.hpp"

namespace plexus::net_ofi {

static_assert(std::endian::native == std::endian::little, "the wire format is little-endian");

inline constexpr uint64_t kWireMagic = 0x33'30'49'46'4f'58'4c'50;  // "PLXOFI03"
/// The part of it that all versions have.
inline constexpr uint64_t kWireNameMask = 0xffff'ffff'ffff;

/// Largest endpoint address that fits in a handle (InfiniBand's has 48 bytes, EFA's 32).
inline constexpr size_t kAddressBytesMax = 60;
using AddressBytes = std::array<uint8_t, kAddressBytesMax>;

/// In the 128-byte handle, which travels over the control plane and is as secret as that. Both
/// sides of a connection prove that they know `key`.
struct WireHandle {
  uint64_t magic;
  security::Key key;
  uint16_t address_bytes;
  security::Mode mode;
  uint8_t reserved;
  AddressBytes address;
  uint64_t origin;                // Links::number_of() of the listening side
  std::array<char, 16> provider;  // zero-terminated; both ends must use the same provider
};
static_assert(sizeof(WireHandle) == PLEXUS_NET_HANDLE_BYTES);

/// The process at the other end, for error messages and for watching one on the same host.
struct WireProcess {
  uint64_t host_id;  // identifies the host and its process ids
  uint64_t start_time;
  uint32_t process_id;
  std::array<char, 28> host_name;  // zero-terminated
};

/// First message of the connecting side (to the listener) and of the accepting side (its answer).
/// `mac` is by the handle's key, of all that precedes it; the answer's also covers the challenge
/// that it answers, so that neither an answer nor a kReady can be replayed. A replayed greeting
/// gets an answer, and nothing else.
struct WireGreeting {
  uint64_t magic;
  security::Nonce challenge;  // random
  uint32_t nonce;             // random; part of all tags of the connection
  uint16_t rails;
  uint16_t address_bytes;  // size of each rail's address
  uint64_t origin;         // Links::number_of() of the sender
  uint32_t link;           // of the connecting side: number of the link between the two origins
  uint32_t reserved;
  WireProcess process;
  std::array<AddressBytes, kRailsMax> addresses;
  security::Mac mac;
};
static_assert(sizeof(WireGreeting) ==
              64 + sizeof(WireProcess) + kRailsMax * kAddressBytesMax + sizeof(security::Mac));

enum class ControlType : uint32_t {
  kReady = 1,   // connecting to accepting side, on each rail: it works; with a proof (make_ready)
  kCredit = 2,  // accepting to connecting side: total number of messages received in `count`
  kAlive = 3,   // either side; sending it fails if the peer is dead
  // either side closes; the sending side's `count` is the total number of messages sent
  kBye = 4,
};
struct WireControl {
  uint32_t type;
  uint32_t proof;  // the first 4 bytes of kReady's; else 0
  uint64_t count;  // of kReady: the next 8 bytes of the proof
};
static_assert(sizeof(WireControl) == 16);
[[nodiscard]] constexpr WireControl make_control(ControlType type, uint64_t count = 0) noexcept {
  return {static_cast<uint32_t>(type), 0, count};
}

static_assert(std::is_trivially_copyable_v<WireHandle> &&
              std::is_trivially_copyable_v<WireGreeting> &&
              std::is_trivially_copyable_v<WireControl>);

/// Layout of a tag: nonce (upper bits)
/// kind (2)
/// sequence (8)
/// the host's tag (32).
enum class TagKind : uint64_t { kMessage = 0, kPart = 1, kControl = 2, kGreeting = 3 };
inline constexpr uint32_t kTagBitsMin = 42;

/// The tags of one connection, limited to the number of bits of the provider.
class Tags {
 public:
  Tags(uint32_t nonce, uint64_t usable_bits) noexcept
      : nonce_(uint64_t{nonce} << kTagBitsMin & usable_bits) {}
  [[nodiscard]] uint64_t make(TagKind kind, int32_t tag = 0, uint8_t sequence = 0) const noexcept {
    return nonce_ | static_cast<uint64_t>(kind) << 40 | uint64_t{sequence} << 32 |
           static_cast<uint32_t>(tag);
  }
  /// The host's tag within `tag`.
  [[nodiscard]] static int32_t user_tag(uint64_t tag) noexcept { return static_cast<int32_t>(tag); }

 private:
  uint64_t nonce_;
};

/// Immediate data of a message: the blocks of it that the other rails carry. The last `blocks`
/// blocks of a message of S bytes go there; the first S - blocks * kBlockBytes go with the message.
inline constexpr uint64_t kBlockBytes = uint64_t{64} * 1024;
struct Split {
  uint32_t blocks = 0;   // less than 2^24: 2^40 bytes
  uint8_t sequence = 0;  // distinguishes messages with equal tags

  [[nodiscard]] uint64_t pack() const noexcept { return uint64_t{blocks} << 8 | sequence; }
  [[nodiscard]] static Split unpack(uint64_t data) noexcept {
    return {static_cast<uint32_t>(data >> 8 & 0xff'ffff), static_cast<uint8_t>(data)};
  }
};
/// Divides `size_bytes` evenly among `rails`. No blocks for one rail or for less than
/// `least_bytes`.
[[nodiscard]] Split split_message(uint64_t size_bytes,
                                  uint32_t rails,
                                  uint64_t least_bytes,
                                  uint8_t sequence);
struct Part {
  uint64_t begin = 0;
  uint64_t size_bytes = 0;  // 0: this rail carries nothing
};
/// The part of a message that `rail` carries (0: with the message itself), given the size
/// `first_bytes` of its first piece.
[[nodiscard]] Part part_of(const Split& split, uint64_t first_bytes, uint32_t rails, uint32_t rail);

/// Checks of data from outside. An Error says what is wrong with it.
[[nodiscard]] Result<WireHandle> read_handle(const plexus_net_handle_t& handle,
                                             std::string_view provider);
/// Accepts bytes of any content and size. `what`: for error messages.
/// `asked`: for an answer, the challenge of the greeting that was sent; else null.
[[nodiscard]] Result<WireGreeting> read_greeting(std::span<const std::byte> bytes,
                                                 const security::Key& key,
                                                 const security::Nonce* asked);
[[nodiscard]] Result<WireControl> read_control(std::span<const std::byte> bytes);

/// Fills in the MAC of a greeting; `asked` as in read_greeting().
void seal(WireGreeting& greeting, const security::Key& key, const security::Nonce* asked) noexcept;
/// The kReady of `rail`. Its proof, 96 bits of a MAC, covers the challenges of both sides.
struct Challenges {
  security::Nonce caller;
  security::Nonce listener;
};
[[nodiscard]] WireControl make_ready(const security::Key& key,
                                     const Challenges& challenges,
                                     uint32_t rail) noexcept;
/// In constant time.
[[nodiscard]] bool is_same(const WireControl& a, const WireControl& b) noexcept;

/// A peer's text up to its zero, with unprintable characters replaced.
[[nodiscard]] std::string readable(std::span<const char> text);

}  // namespace plexus::net_ofi
