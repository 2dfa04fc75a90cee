// SPDX-License-Identifier: Apache-2.0
// The 128 bytes of an ncclUniqueId: the introducer's address, and the secret that proves
// membership.
//
//   PLEXUS_TRY(id, UniqueId::create(address));
//   const auto bytes = id.to_bytes();  // what ncclGetUniqueId gives
//   PLEXUS_TRY(same, UniqueId::from_bytes(bytes));
//   return ok();
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

/// Layout of the bytes: 0 magic "PLXUID02", 8 job id (little endian), 16 secret, 48 address
/// (SocketAddress::pack), 76 listener, 77 checksum of what is before it (FNV-1a), the rest zero.
struct UniqueId {
  static constexpr size_t kBytes = 128;
  /// Who listens at the address.
  enum class Listener : uint8_t {
    kMaker,             // the process that made the id, since then
    kRankZero,          // rank 0, once it joins
    kRankZeroAnywhere,  // the same, at all addresses of its host: others may know it by another one
  };
  uint64_t job = 0;
  Secret secret{};
  SocketAddress address;
  Listener listener = Listener::kMaker;

  [[nodiscard]] std::array<std::byte, kBytes> to_bytes() const;
  static Result<UniqueId> from_bytes(std::span<const std::byte, kBytes> bytes);
  /// Makes an id with a random job id and secret.
  static Result<UniqueId> create(const SocketAddress& address);
  /// An id that nobody has to pass on: job id and secret are derived from `text`, which all ranks
  /// know, so whoever knows it can join. For trusted networks only. Rank 0 listens.
  static Result<UniqueId> derive(const SocketAddress& address, std::string_view text);
  /// NCCL_COMM_ID: derived from its port, since ranks may spell the host differently. Where the
  /// host is a name, rank 0 listens anywhere.
  static Result<UniqueId> from_comm_id(std::string_view host_and_port);
};

}  // namespace plexus
