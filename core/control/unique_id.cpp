// SPDX-License-Identifier: Apache-2.0
#include "core/control/unique_id.hpp"

#include <algorithm>
#include <cstring>

#include <sodium.h>

#include "core/base/hash.hpp"

namespace plexus {
namespace {

constexpr char kIdMagic[8] = {'P', 'L', 'X', 'U', 'I', 'D', '0', '2'};
constexpr size_t kJobAt = 8;
constexpr size_t kSecretAt = 16;
constexpr size_t kAddressAt = kSecretAt + kSecretBytes;
constexpr size_t kListenerAt = kAddressAt + SocketAddress::kPackedBytes;
constexpr size_t kSumAt = kListenerAt + 1;
constexpr size_t kUsed = kSumAt + sizeof(uint64_t);

/// Checksum of all bytes before it. It distinguishes an id that was truncated or treated as text on
/// its way from the id of a job that has ended.
uint64_t sum_of(std::span<const std::byte, UniqueId::kBytes> bytes) {
  Fnv1a hash;
  for (const std::byte byte : bytes.first<kSumAt>()) {
    hash.mix(static_cast<uint64_t>(byte));
  }
  return hash.value();
}

}  // namespace

std::array<std::byte, UniqueId::kBytes> UniqueId::to_bytes() const {
  std::array<std::byte, kBytes> bytes{};
  std::memcpy(bytes.data(), kIdMagic, sizeof(kIdMagic));
  std::memcpy(bytes.data() + kJobAt, &job, sizeof(job));
  std::memcpy(bytes.data() + kSecretAt, secret.data(), secret.size());
  address.pack(reinterpret_cast<uint8_t*>(bytes.data() + kAddressAt));
  bytes[kListenerAt] = static_cast<std::byte>(listener);
  const uint64_t sum = sum_of(bytes);
  std::memcpy(bytes.data() + kSumAt, &sum, sizeof(sum));
  return bytes;
}

Result<UniqueId> UniqueId::from_bytes(std::span<const std::byte, kBytes> bytes) {
  const bool tail_is_zero = std::all_of(bytes.begin() + kUsed, bytes.end(),
                                        [](std::byte b) { return b == std::byte{0}; });
  uint64_t sum = 0;
  std::memcpy(&sum, bytes.data() + kSumAt, sizeof(sum));
  const auto listener = static_cast<Listener>(bytes[kListenerAt]);
  if (std::memcmp(bytes.data(), kIdMagic, sizeof(kIdMagic)) != 0 || !tail_is_zero ||
      sum != sum_of(bytes) || listener > Listener::kRankZeroAnywhere) {
    return fail(Code::kInvalidArgument,
                "the unique id is damaged or not from this library: pass the 128 bytes of "
                "ncclGetUniqueId unchanged");
  }
  UniqueId id;
  std::memcpy(&id.job, bytes.data() + kJobAt, sizeof(id.job));
  std::memcpy(id.secret.data(), bytes.data() + kSecretAt, kSecretBytes);
  PLEXUS_TRY(address,
             SocketAddress::unpack(reinterpret_cast<const uint8_t*>(bytes.data() + kAddressAt)));
  id.address = address;
  id.listener = listener;
  return id;
}

Result<UniqueId> UniqueId::create(const SocketAddress& address) {
  if (sodium_init() < 0) {
    return fail(Code::kSystemError, "libsodium cannot be initialized: no source of randomness");
  }
  UniqueId id;
  id.address = address;
  randombytes_buf(&id.job, sizeof(id.job));
  randombytes_buf(id.secret.data(), id.secret.size());
  return id;
}

Result<UniqueId> UniqueId::derive(const SocketAddress& address, std::string_view text) {
  if (sodium_init() < 0) {
    return fail(Code::kSystemError, "libsodium cannot be initialized: no source of randomness");
  }
  UniqueId id;
  id.address = address;
  id.listener = Listener::kRankZero;
  crypto_generichash(id.secret.data(), id.secret.size(),
                     reinterpret_cast<const unsigned char*>(text.data()), text.size(), nullptr, 0);
  std::memcpy(&id.job, id.secret.data(), sizeof(id.job));
  return id;
}

Result<UniqueId> UniqueId::from_comm_id(std::string_view host_and_port) {
  auto address = SocketAddress::parse(host_and_port);
  if (address.has_error()) {
    return std::move(address).error().with_context("NCCL_COMM_ID");
  }
  // Not of the host, which the ranks may spell differently.
  PLEXUS_TRY(id, derive(address.value(),
                        fmt::format("plexus NCCL_COMM_ID port {}", address.value().port())));
  if (!SocketAddress::is_numeric(host_and_port)) {
    id.listener = Listener::kRankZeroAnywhere;  // its own host may call itself 127.0.1.1
  }
  return id;
}

}  // namespace plexus
