// SPDX-License-Identifier: Apache-2.0
// The 128 bytes of an ncclUniqueId: the introducer's address, and the secret that proves
// membership.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "core/base/result.hpp"
#include "core/os/socket.hpp"
#include "security/terms.hpp"

namespace plexus {

using Secret = security::Key;
inline constexpr size_t kSecretBytes = security::kKeyBytes;

/// Layout of the bytes: 0 magic "PLXUID01", 8 job id (little endian), 16 secret, 48 address
/// (SocketAddress::pack), 76 checksum of what is before it (FNV-1a), the rest zero.
struct UniqueId {
  static constexpr size_t kBytes = 128;
  uint64_t job = 0;
  Secret secret{};
  SocketAddress address;

  [[nodiscard]] std::array<std::byte, kBytes> to_bytes() const;
  static Result<UniqueId> from_bytes(std::span<const std::byte, kBytes> bytes);
  /// Makes an id with a random job id and secret.
  static Result<UniqueId> create(const SocketAddress& address);
  /// NCCL_COMM_ID: job id and secret are derived from the text, so whoever knows the text can join.
  /// For trusted networks only, as in NCCL.
  static Result<UniqueId> from_comm_id(std::string_view host_and_port);
};

}  // namespace plexus
