// SPDX-License-Identifier: Apache-2.0
// PLEXUS_NET_CHECKSUM: CRC32C of messages through a network, whatever its plugin. The sender writes
// the sums into the message's header, the receiver compares them with what arrived. A payload in
// GPU memory is not summed: the host cannot read it at the speed of the network.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>

#include "core/base/result.hpp"
#include "core/transport/network/net_message.hpp"

namespace plexus {

/// `before`: the sum of the bytes that precede.
[[nodiscard]] uint32_t crc32c(std::span<const std::byte> bytes, uint32_t before = 0) noexcept;

/// The payload's place in memory of the host: one piece, and the rest of it in another.
struct PayloadPieces {
  std::span<const std::byte> first;
  std::span<const std::byte> rest = {};
};

/// The sum for NetHeader::payload_sum; never 0, which means that there is none.
[[nodiscard]] uint32_t sum_payload(const PayloadPieces& payload) noexcept;
/// Fills in the sum of the header itself, when all else is in it.
void sign_header(NetHeader& header) noexcept;

/// Whether a message of `size_bytes` has sums that its sender signed.
[[nodiscard]] inline bool is_signed(const std::byte* message, size_t size_bytes) noexcept {
  NetHeader header{};
  if (size_bytes >= sizeof(header)) {
    std::memcpy(&header, message, sizeof(header));
  }
  return header.header_sum != 0;
}

/// For the error of a sum that does not match.
struct SummedLink {
  std::string_view peer_name;  // the sender
  int rank;                    // the receiver
  std::string_view route;      // network and devices
};
[[nodiscard]] Result<void> check_header(const NetHeader& header, const SummedLink& link);
/// Nothing is compared when the sender could not sum the payload.
[[nodiscard]] Result<void> check_payload(const NetHeader& header,
                                         const PayloadPieces& payload,
                                         const SummedLink& link);

}  // namespace plexus
