// SPDX-License-Identifier: Apache-2.0
// Who says so: Ed25519 signatures of texts that are kept, and digests of files (BLAKE2b-256, which
// `b2sum -l 256` prints too), by libsodium.
//
//   const auto key = make_signing_key();
//   const Signature signature = sign(*key, "greeting", "hello");
//   is_signed(public_key_of(*key), "greeting", "hello", signature);  // true
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace plexus::security {

/// Whoever has these bytes can sign.
struct SigningKey {
  std::array<uint8_t, 32> seed;
};
using PublicKey = std::array<uint8_t, 32>;
using Signature = std::array<uint8_t, 64>;
using Digest = std::array<uint8_t, 32>;

/// nullopt: the system has no source of randomness.
[[nodiscard]] std::optional<SigningKey> make_signing_key();
[[nodiscard]] PublicKey public_key_of(const SigningKey& key) noexcept;

/// What is signed is `purpose`, a byte 0, and `text`.
[[nodiscard]] Signature sign(const SigningKey& key,
                             std::string_view purpose,
                             std::string_view text);
[[nodiscard]] bool is_signed(const PublicKey& key,
                             std::string_view purpose,
                             std::string_view text,
                             const Signature& signature);

/// The text of a file that holds the key: one line. parse_signing_key: nullopt for any other text.
[[nodiscard]] std::string format_signing_key(const SigningKey& key);
[[nodiscard]] std::optional<SigningKey> parse_signing_key(std::string_view text);

[[nodiscard]] Digest compute_digest(std::string_view bytes) noexcept;

/// In lower case.
[[nodiscard]] std::string format_hex(std::span<const uint8_t> bytes);
/// False unless `text` is exactly the digits of `bytes`, in lower case.
[[nodiscard]] bool parse_hex(std::string_view text, std::span<uint8_t> bytes) noexcept;

}  // namespace plexus::security
