// SPDX-License-Identifier: Apache-2.0
// Data from a peer of net-ib: handles, hellos, control messages and immediate data. Whatever is
// accepted must satisfy the plugin's assumptions.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <span>

#include "plugins/net-ib/wire.hpp"

namespace plexus::net_ib {
namespace {

void require(bool condition) {
  if (!condition) {
    std::abort();
  }
}

/// The input with zeros behind it, as a message of type T whose first word may be made right.
template <class T>
T as_message(std::span<const std::byte> bytes, bool has_magic) {
  T message{};
  std::memcpy(&message, bytes.data(), std::min(bytes.size(), sizeof message));
  if (has_magic) {
    std::memcpy(static_cast<void*>(&message), &kWireMagic,
                std::min(sizeof message, sizeof kWireMagic));
  }
  return message;
}

void fuzz_hello(std::span<const std::byte> bytes) {
  const auto message = as_message<WireHello>(bytes, true);
  const auto hello = read_hello(std::as_bytes(std::span(&message, 1)));
  if (hello.has_error()) {
    return;
  }
  require(hello.value().rails >= 1 && hello.value().rails <= kRailsMax);
  require(hello.value().qps >= 1 && hello.value().qps <= kQpsMax);
  require(readable(hello.value().host).size() <= hello.value().host.size());
  for (uint32_t i = 0; i < hello.value().rails; ++i) {
    require(hello.value().rail[i].mtu >= IBV_MTU_256 && hello.value().rail[i].mtu <= IBV_MTU_4096);
  }
}

void fuzz_immediate(uint32_t bits) {
  const Immediate immediate = Immediate::unpack(bits);
  require(immediate.request < kRequests && immediate.buffer < PLEXUS_NET_RECVS_MAX);
  require(immediate.round < kImmediateRounds && immediate.size_bytes <= kShortBytesMax);
  require(immediate.part < kPartsMax && immediate.parts >= 1 && immediate.parts <= kPartsMax);
  if (immediate.is_short) {
    require(immediate.pack() == bits);
  }
}

void fuzz(std::span<const std::byte> bytes) {
  const auto handle = as_message<plexus_net_handle_t>(bytes, true);
  if (const auto wire = read_handle(handle); wire.has_value()) {
    require(plugin::is_usable(wire.value().address));
  }
  require(read_hello(bytes.first(std::min(bytes.size(), sizeof(WireHello) - 1))).has_error());
  fuzz_hello(bytes);
  const auto message = as_message<WireControl>(bytes, false);
  if (const auto control = read_control(std::as_bytes(std::span(&message, 1)));
      control.has_value()) {
    require(control.value().type >= 1 && control.value().type <= kControlTypeMax);
    require(control.value().rail < kRailsMax);
    (void)readable(control.value().text);
  }
  fuzz_immediate(as_message<uint32_t>(bytes, false));
}

}  // namespace
}  // namespace plexus::net_ib

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  plexus::net_ib::fuzz(std::as_bytes(std::span(data, size)));
  return 0;
}
