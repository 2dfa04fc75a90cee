// SPDX-License-Identifier: Apache-2.0
// A secret that travels: encrypted and authenticated by another one that both ends know
// (libsodium's secretbox: XSalsa20 and Poly1305, a random nonce in front).
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "security/terms.hpp"

namespace plexus::security {

/// `purpose` as in authenticate(). Empty: the system has no source of randomness.
[[nodiscard]] std::string seal(const Key& key,
                               std::string_view purpose,
                               std::span<const std::byte> secret);
/// nullopt: not sealed by this key for this purpose, or changed on its way.
[[nodiscard]] std::optional<std::vector<std::byte>> unseal(const Key& key,
                                                           std::string_view purpose,
                                                           std::string_view sealed);

}  // namespace plexus::security
