// SPDX-License-Identifier: Apache-2.0
// What the two ends of a connection agreed on beforehand: how it is secured, and the secret that
// both know. The settings PLEXUS_NET_SECURITY and the keys of unique ids and handles end here.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace plexus::security {

enum class Mode : uint8_t {
  kOff,   // both sides name the secret's fingerprint, which can be replayed
  kAuth,  // both sides prove by challenge that they know the secret; what follows is in clear
  kTls,   // TLS 1.3 with a key that is derived from the secret
};
inline constexpr const char* kModeSetting = "PLEXUS_NET_SECURITY";
inline constexpr const char* kModeChoices = "off, auth or tls";

/// The value of PLEXUS_NET_SECURITY; an empty one is the default, auth. nullopt: it is no mode.
[[nodiscard]] std::optional<Mode> parse_mode(std::string_view text) noexcept;
/// Any value may come from another host; one that is no mode is "an unknown mode".
[[nodiscard]] const char* name_of(Mode mode) noexcept;
/// The sentence for two ends that differ. `peer`: its name, the subject of the second half.
[[nodiscard]] std::string describe_difference(Mode mine, Mode peers, std::string_view peer);

inline constexpr size_t kKeyBytes = 32;
using Key = std::array<uint8_t, kKeyBytes>;
using Nonce = std::array<uint8_t, kKeyBytes>;
/// HMAC-SHA-256.
using Mac = std::array<uint8_t, kKeyBytes>;

struct Terms {
  Mode mode = Mode::kAuth;
  Key key{};
};

/// False: the system has no source of randomness.
[[nodiscard]] bool fill_random(std::span<uint8_t> target) noexcept;
/// `purpose` keeps a MAC for one use from serving another.
[[nodiscard]] Mac authenticate(const Key& key,
                               std::string_view purpose,
                               std::span<const std::byte> bytes) noexcept;
/// In constant time.
[[nodiscard]] bool is_equal(std::span<const uint8_t> a, std::span<const uint8_t> b) noexcept;
/// The key of a secret of any length that people keep in a file.
[[nodiscard]] Key key_of_text(std::string_view purpose, std::string_view text) noexcept;

}  // namespace plexus::security
