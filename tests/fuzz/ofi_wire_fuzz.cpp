// SPDX-License-Identifier: Apache-2.0
// Data from a peer of net-ofi: handles, greetings, control messages and the immediate data of a
// message. Whatever is accepted must satisfy the plugin's assumptions.
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <span>

#include "plugins/net-ofi/wire.hpp"

namespace plexus::net_ofi {
namespace {

void require(bool condition) {
  if (!condition) {
    std::abort();
  }
}

void fuzz(std::span<const std::byte> bytes) {
  plexus_net_handle_t handle{};
  std::memcpy(handle.bytes, bytes.data(), std::min(bytes.size(), sizeof handle.bytes));
  if (const auto wire = read_handle(handle, ""); wire.has_value()) {
    require(wire.value().address_bytes >= 1 && wire.value().address_bytes <= kAddressBytesMax);
  }
  std::array<std::byte, sizeof(WireGreeting)> sealed{};  // what one who knows the secret may send
  std::memcpy(sealed.data(), bytes.data(), std::min(bytes.size(), sealed.size()));
  auto& inside = reinterpret_cast<WireGreeting&>(sealed);
  seal(inside, security::Key{}, nullptr);
  if (const auto greeting = read_greeting(sealed, security::Key{}, nullptr); greeting.has_value()) {
    require(greeting.value().rails >= 1 && greeting.value().rails <= kRailsMax);
    require(readable(greeting.value().process.host_name).size() <=
            greeting.value().process.host_name.size());
  }
  security::Key secret;
  secret.fill(9);
  require(read_greeting(bytes, secret, nullptr).has_error());
  if (const auto control = read_control(bytes); control.has_value()) {
    require(control.value().type >= 1 && control.value().type <= 4);
  }
  uint64_t data = 0;
  std::memcpy(&data, bytes.data(), std::min(bytes.size(), sizeof data));
  const Split split = Split::unpack(data);
  for (uint32_t rails = 2; rails <= kRailsMax; ++rails) {  // the parts cover the end of the message
    const uint64_t first_bytes = data >> 24;
    uint64_t end = part_of(split, first_bytes, rails, 0).size_bytes;
    for (uint32_t rail = 1; rail < rails; ++rail) {
      const Part part = part_of(split, first_bytes, rails, rail);
      require(part.begin == end);
      end += part.size_bytes;
    }
    require(end == first_bytes + split.blocks * kBlockBytes);
  }
}

}  // namespace
}  // namespace plexus::net_ofi

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  plexus::net_ofi::fuzz(std::as_bytes(std::span(data, size)));
  return 0;
}
