// SPDX-License-Identifier: Apache-2.0
// The first bytes of a connection, from a peer without the secret, to both roles in all modes:
// whatever comes, nobody is believed, and what is sent back is bounded.
//
// Input: the first byte chooses role and mode, and divides the rest into pieces.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <span>

#include "security/handshake.hpp"

namespace plexus::security {
namespace {

void require(bool condition) {
  if (!condition) {
    std::abort();
  }
}

void fuzz(std::span<const std::byte> bytes) {
  if (bytes.empty()) {
    return;
  }
  const auto choice = static_cast<unsigned>(bytes.front());
  Terms terms{.mode = static_cast<Mode>(choice % 3)};
  terms.key.fill(1);
  const Role role = choice % 2 == 0 ? Role::kCaller : Role::kListener;
  Handshake side(terms, role);
  for (bytes = bytes.subspan(1); !bytes.empty() && !side.room().empty();) {
    const std::span<std::byte> room = side.room();
    require(room.size() <= sizeof(Hello));
    const size_t part = std::min({room.size(), bytes.size(), size_t{choice / 8} + 1});
    std::memcpy(room.data(), bytes.data(), part);
    bytes = bytes.subspan(part);
    side.take(part);
    require(side.output().size() <= sizeof(Hello) + sizeof(Answer));
  }
  side.sent(side.output().size());
  require(!side.is_over() || !side.error().empty());
}

}  // namespace
}  // namespace plexus::security

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  plexus::security::fuzz(std::as_bytes(std::span(data, size)));
  return 0;
}
