// SPDX-License-Identifier: Apache-2.0
// What libsodium takes: bytes as unsigned characters.
#pragma once

namespace plexus::security {

inline const unsigned char* raw(const void* bytes) {
  return static_cast<const unsigned char*>(bytes);
}

}  // namespace plexus::security
