// SPDX-License-Identifier: Apache-2.0
#include "security/terms.hpp"

#include <algorithm>

#include <fmt/core.h>
#include <sodium.h>

#include "security/raw.hpp"

namespace plexus::security {
namespace {

constexpr std::array<const char*, 3> kNames = {"off", "auth", "tls"};
static_assert(crypto_auth_hmacsha256_BYTES == sizeof(Mac));

Mac compute_mac(std::span<const uint8_t> key,
                std::string_view purpose,
                std::span<const std::byte> bytes) noexcept {
  crypto_auth_hmacsha256_state state;
  Mac mac{};
  // The zero ends the purpose, so that it cannot be continued by the bytes.
  constexpr unsigned char kEnd = 0;
  crypto_auth_hmacsha256_init(&state, key.data(), key.size());
  crypto_auth_hmacsha256_update(&state, raw(purpose.data()), purpose.size());
  crypto_auth_hmacsha256_update(&state, &kEnd, sizeof kEnd);
  crypto_auth_hmacsha256_update(&state, raw(bytes.data()), bytes.size());
  crypto_auth_hmacsha256_final(&state, mac.data());
  return mac;
}

}  // namespace

std::optional<Mode> parse_mode(std::string_view text) noexcept {
  if (text.empty()) {
    return Mode::kAuth;
  }
  const auto* const at = std::find(kNames.begin(), kNames.end(), text);
  return at == kNames.end() ? std::nullopt
                            : std::optional<Mode>(static_cast<Mode>(at - kNames.begin()));
}

const char* name_of(Mode mode) noexcept {
  return mode <= Mode::kTls ? kNames[static_cast<size_t>(mode)] : "an unknown mode";
}

std::string describe_difference(Mode mine, Mode peers, std::string_view peer) {
  return fmt::format("{} is {} here and {} at {}: set it to the same value everywhere",
                     kModeSetting, name_of(mine), name_of(peers), peer);
}

bool fill_random(std::span<uint8_t> target) noexcept {
  if (sodium_init() < 0) {
    return false;
  }
  randombytes_buf(target.data(), target.size());
  return true;
}

Mac authenticate(const Key& key,
                 std::string_view purpose,
                 std::span<const std::byte> bytes) noexcept {
  return compute_mac(key, purpose, bytes);
}

bool is_equal(std::span<const uint8_t> a, std::span<const uint8_t> b) noexcept {
  return a.size() == b.size() && sodium_memcmp(a.data(), b.data(), a.size()) == 0;
}

Key key_of_text(std::string_view purpose, std::string_view text) noexcept {
  return compute_mac(std::span(raw(text.data()), text.size()), purpose, {});
}

}  // namespace plexus::security
