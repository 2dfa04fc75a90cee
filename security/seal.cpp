// SPDX-License-Identifier: Apache-2.0
#include "security/seal.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include <sodium.h>

#include "security/raw.hpp"

namespace plexus::security {
namespace {

constexpr size_t kNonceBytes = crypto_secretbox_NONCEBYTES;
constexpr size_t kExtraBytes = kNonceBytes + crypto_secretbox_MACBYTES;
static_assert(crypto_secretbox_KEYBYTES == kKeyBytes);

}  // namespace

std::string seal(const Key& key, std::string_view purpose, std::span<const std::byte> secret) {
  std::array<uint8_t, kNonceBytes> nonce{};
  if (!fill_random(nonce)) {
    return {};
  }
  std::string sealed(secret.size() + kExtraBytes, '\0');
  std::copy(nonce.begin(), nonce.end(), sealed.begin());
  crypto_secretbox_easy(reinterpret_cast<unsigned char*>(sealed.data()) + kNonceBytes,
                        raw(secret.data()), secret.size(), nonce.data(),
                        authenticate(key, purpose, {}).data());
  return sealed;
}

std::optional<std::vector<std::byte>> unseal(const Key& key,
                                             std::string_view purpose,
                                             std::string_view sealed) {
  if (sealed.size() < kExtraBytes) {
    return std::nullopt;
  }
  std::vector<std::byte> secret(sealed.size() - kExtraBytes);
  const bool is_ours =
      crypto_secretbox_open_easy(reinterpret_cast<unsigned char*>(secret.data()),
                                 raw(sealed.data()) + kNonceBytes, sealed.size() - kNonceBytes,
                                 raw(sealed.data()), authenticate(key, purpose, {}).data()) == 0;
  return is_ours ? std::optional(std::move(secret)) : std::nullopt;
}

}  // namespace plexus::security
