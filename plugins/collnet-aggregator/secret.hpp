// SPDX-License-Identifier: Apache-2.0
// The secret that the operator of a stand-alone server gives to it and to the members, in a file.
#pragma once

#include <string>

#include "plugins/support/result.hpp"
#include "security/terms.hpp"

namespace plexus::aggregator {

inline constexpr const char* kSecretFileSetting = "PLEXUS_AGGREGATOR_SECRET_FILE";

/// The key for the secret in the file at `path`. A file that others may read is refused, and one
/// with less than 16 bytes. Spaces and newlines at the end do not count. An empty path: the key of
/// those who have no secret, which everybody knows.
[[nodiscard]] plugin::Result<security::Key> read_secret(const std::string& path);

}  // namespace plexus::aggregator
