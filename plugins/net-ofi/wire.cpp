// SPDX-License-Identifier: Apache-2.0
#include "plugins/net-ofi/wire.hpp"

#include <algorithm>
#include <cstddef>
#include <cstring>

namespace plexus::net_ofi {
namespace {

security::Mac compute_mac(const WireGreeting& greeting,
                          const security::Key& key,
                          const security::Nonce* asked) noexcept {
  constexpr size_t kCovered = offsetof(WireGreeting, mac);
  std::array<std::byte, kCovered + sizeof(security::Nonce)> covered{};
  std::memcpy(covered.data(), &greeting, kCovered);
  if (asked != nullptr) {
    std::memcpy(covered.data() + kCovered, asked->data(), asked->size());
  }
  return security::authenticate(key, asked == nullptr ? "ofi greeting" : "ofi answer", covered);
}

}  // namespace

Split split_message(uint64_t size_bytes, uint32_t rails, uint64_t least_bytes, uint8_t sequence) {
  if (rails <= 1 || size_bytes < least_bytes) {
    return {0, sequence};
  }
  const uint64_t elsewhere = size_bytes / rails * (rails - 1);
  return {static_cast<uint32_t>(elsewhere / kBlockBytes), sequence};
}

Part part_of(const Split& split, uint64_t first_bytes, uint32_t rails, uint32_t rail) {
  if (rail == 0) {
    return {0, first_bytes};
  }
  const uint64_t others = rails - 1;
  const uint64_t begin = split.blocks * uint64_t{rail - 1} / others;
  const uint64_t end = split.blocks * uint64_t{rail} / others;
  return {first_bytes + begin * kBlockBytes, (end - begin) * kBlockBytes};
}

Result<WireHandle> read_handle(const plexus_net_handle_t& handle, std::string_view provider) {
  WireHandle wire{};
  std::memcpy(&wire, handle.bytes, sizeof wire);
  if (wire.magic != kWireMagic && (wire.magic & kWireNameMask) == (kWireMagic & kWireNameMask)) {
    return fail(PLEXUS_INVALID_USAGE,
                "the handle was made by another version of net-ofi; use the same version of Plexus "
                "on all ranks");
  }
  if (wire.magic != kWireMagic || wire.address_bytes == 0 ||
      wire.address_bytes > kAddressBytesMax) {
    return fail(PLEXUS_INVALID_ARGUMENT,
                "the handle was not made by net-ofi; use the same network plugin on all ranks");
  }
  if (const std::string theirs = readable(wire.provider); theirs != provider) {
    return fail(PLEXUS_INVALID_USAGE,
                "the peer uses libfabric's provider {}, this process {}; set PLEXUS_OFI_PROVIDER "
                "to one that all hosts have",
                theirs, provider);
  }
  return wire;
}

void seal(WireGreeting& greeting, const security::Key& key, const security::Nonce* asked) noexcept {
  greeting.mac = compute_mac(greeting, key, asked);
}

WireControl make_ready(const security::Key& key,
                       const Challenges& challenges,
                       uint32_t rail) noexcept {
  std::array<std::byte, sizeof(Challenges) + sizeof rail> covered{};
  std::memcpy(covered.data(), &challenges, sizeof challenges);
  std::memcpy(covered.data() + sizeof challenges, &rail, sizeof rail);
  const security::Mac mac = security::authenticate(key, "ofi ready", covered);
  WireControl ready{static_cast<uint32_t>(ControlType::kReady), 0, 0};
  std::memcpy(&ready.proof, mac.data(), sizeof ready.proof);
  std::memcpy(&ready.count, mac.data() + sizeof ready.proof, sizeof ready.count);
  return ready;
}

bool is_same(const WireControl& a, const WireControl& b) noexcept {
  const auto bytes_of = [](const WireControl& control) {
    return std::span(reinterpret_cast<const uint8_t*>(&control), sizeof control);
  };
  return security::is_equal(bytes_of(a), bytes_of(b));
}

Result<WireGreeting> read_greeting(std::span<const std::byte> bytes,
                                   const security::Key& key,
                                   const security::Nonce* asked) {
  WireGreeting greeting{};
  if (bytes.size() != sizeof greeting) {
    return fail(PLEXUS_REMOTE_ERROR, "its greeting has {} bytes, expected {}", bytes.size(),
                sizeof greeting);
  }
  std::memcpy(&greeting, bytes.data(), sizeof greeting);
  if (greeting.magic != kWireMagic) {
    return fail(PLEXUS_REMOTE_ERROR, "its greeting is not one of net-ofi, or of another version");
  }
  if (!security::is_equal(greeting.mac, compute_mac(greeting, key, asked))) {
    return fail(PLEXUS_REMOTE_ERROR, "its greeting does not show that it knows the secret");
  }
  if (greeting.rails == 0 || greeting.rails > kRailsMax || greeting.address_bytes == 0 ||
      greeting.address_bytes > kAddressBytesMax) {
    return fail(PLEXUS_REMOTE_ERROR,
                "its greeting has {} rails and addresses of {} bytes, which is invalid",
                greeting.rails, greeting.address_bytes);
  }
  return greeting;
}

Result<WireControl> read_control(std::span<const std::byte> bytes) {
  WireControl control{};
  if (bytes.size() != sizeof control) {
    return fail(PLEXUS_REMOTE_ERROR, "a control message of {} bytes, expected {}", bytes.size(),
                sizeof control);
  }
  std::memcpy(&control, bytes.data(), sizeof control);
  if (control.type < static_cast<uint32_t>(ControlType::kReady) ||
      control.type > static_cast<uint32_t>(ControlType::kBye)) {
    return fail(PLEXUS_REMOTE_ERROR, "a control message of type {}, which does not exist",
                control.type);
  }
  return control;
}

std::string readable(std::span<const char> text) {
  std::string result(text.begin(), std::find(text.begin(), text.end(), '\0'));
  std::replace_if(
      result.begin(), result.end(), [](char c) { return c < ' ' || c > '~'; }, '?');
  return result;
}

}  // namespace plexus::net_ofi
