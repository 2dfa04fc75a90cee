// SPDX-License-Identifier: Apache-2.0
#include "security/signature.hpp"

#include <algorithm>

#include <sodium.h>

#include "security/raw.hpp"
#include "security/terms.hpp"

namespace plexus::security {
namespace {

constexpr std::string_view kKeyFileStem = "plexus-signing-key-1 ";

static_assert(sizeof(SigningKey) == crypto_sign_SEEDBYTES);
static_assert(sizeof(PublicKey) == crypto_sign_PUBLICKEYBYTES);
static_assert(sizeof(Signature) == crypto_sign_BYTES);

/// libsodium's form of a key: the seed and the public key.
struct Pair {
  explicit Pair(const SigningKey& key) noexcept {
    crypto_sign_seed_keypair(open.data(), secret.data(), key.seed.data());
  }
  Pair(const Pair&) = delete;
  Pair& operator=(const Pair&) = delete;
  ~Pair() { sodium_memzero(secret.data(), secret.size()); }
  PublicKey open{};
  std::array<unsigned char, crypto_sign_SECRETKEYBYTES> secret{};
};

/// The zero ends the purpose, so that it cannot be continued by the text.
std::string join(std::string_view purpose, std::string_view text) {
  std::string joined(purpose);
  joined += '\0';
  return joined.append(text);
}

}  // namespace

std::optional<SigningKey> make_signing_key() {
  SigningKey key{};
  return fill_random(key.seed) ? std::optional(key) : std::nullopt;
}

PublicKey public_key_of(const SigningKey& key) noexcept { return Pair(key).open; }

Signature sign(const SigningKey& key, std::string_view purpose, std::string_view text) {
  const Pair pair(key);
  const std::string joined = join(purpose, text);
  Signature signature{};
  crypto_sign_detached(signature.data(), nullptr, raw(joined.data()), joined.size(),
                       pair.secret.data());
  return signature;
}

bool is_signed(const PublicKey& key,
               std::string_view purpose,
               std::string_view text,
               const Signature& signature) {
  const std::string joined = join(purpose, text);
  return crypto_sign_verify_detached(signature.data(), raw(joined.data()), joined.size(),
                                     key.data()) == 0;
}

std::string format_signing_key(const SigningKey& key) {
  return std::string(kKeyFileStem) + format_hex(key.seed) + "\n";
}

std::optional<SigningKey> parse_signing_key(std::string_view text) {
  if (!text.starts_with(kKeyFileStem) || !text.ends_with('\n')) {
    return std::nullopt;
  }
  text.remove_prefix(kKeyFileStem.size());
  text.remove_suffix(1);
  SigningKey key{};
  return parse_hex(text, key.seed) ? std::optional(key) : std::nullopt;
}

Digest compute_digest(std::string_view bytes) noexcept {
  Digest digest{};
  crypto_generichash(digest.data(), digest.size(), raw(bytes.data()), bytes.size(), nullptr, 0);
  return digest;
}

std::string format_hex(std::span<const uint8_t> bytes) {
  std::string text(2 * bytes.size() + 1, '\0');
  sodium_bin2hex(text.data(), text.size(), bytes.data(), bytes.size());
  text.pop_back();
  return text;
}

bool parse_hex(std::string_view text, std::span<uint8_t> bytes) noexcept {
  const bool are_digits = std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
  });
  return are_digits && text.size() == 2 * bytes.size() &&
         sodium_hex2bin(bytes.data(), bytes.size(), text.data(), text.size(), nullptr, nullptr,
                        nullptr) == 0;
}

}  // namespace plexus::security
