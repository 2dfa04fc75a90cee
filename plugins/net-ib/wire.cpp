// SPDX-License-Identifier: Apache-2.0
#include "plugins/net-ib/wire.hpp"

#include <algorithm>
#include <cctype>
#include <cstring>

namespace plexus::net_ib {
namespace {

// Immediate data: is_long (1) round (5) request (5) buffer (3), then of a short message its size
// (18), of a long one its part (5) and the number of parts less one (5).
constexpr uint32_t kLongBit = 31;
constexpr uint32_t kRoundShift = 26;
constexpr uint32_t kRequestShift = 21;
constexpr uint32_t kBufferShift = 18;
constexpr uint32_t kPartShift = 5;
constexpr uint32_t kPartMask = kPartsMax - 1;
static_assert(kRequests == 32 && kImmediateRounds == 32 && PLEXUS_NET_RECVS_MAX == 8);

constexpr uint64_t kPartAlignment = 4096;

uint64_t round_up(uint64_t value, uint64_t step) { return (value + step - 1) / step * step; }

bool is_sane_rail(const WireRail& rail) {
  const bool has_link =
      rail.link_layer == IBV_LINK_LAYER_INFINIBAND || rail.link_layer == IBV_LINK_LAYER_ETHERNET;
  return has_link && rail.mtu >= IBV_MTU_256 && rail.mtu <= IBV_MTU_4096;
}

}  // namespace

Result<WireHandle> read_handle(const plexus_net_handle_t& handle) {
  WireHandle wire{};
  std::memcpy(&wire, handle.bytes, sizeof wire);
  if (wire.magic != kWireMagic || !plugin::is_usable(wire.address)) {
    return fail(PLEXUS_INVALID_ARGUMENT,
                "the handle was not made by net-ib; use the same network plugin on all ranks");
  }
  return wire;
}

Result<WireHello> read_hello(std::span<const std::byte> bytes) {
  WireHello hello{};
  if (bytes.size() != sizeof hello) {
    return fail(PLEXUS_REMOTE_ERROR, "its hello has {} bytes instead of {}", bytes.size(),
                sizeof hello);
  }
  std::memcpy(&hello, bytes.data(), sizeof hello);
  if (hello.magic != kWireMagic) {
    return fail(PLEXUS_REMOTE_ERROR, "its hello is not one of this version of net-ib");
  }
  const bool has_counts =
      hello.rails >= 1 && hello.rails <= kRailsMax && hello.qps >= 1 && hello.qps <= kQpsMax;
  if (!has_counts || !std::all_of(hello.rail.begin(), hello.rail.begin() + hello.rails,
                                  [](const WireRail& rail) { return is_sane_rail(rail); })) {
    return fail(PLEXUS_REMOTE_ERROR, "its hello has invalid numbers");
  }
  return hello;
}

Result<WireControl> read_control(std::span<const std::byte> bytes) {
  WireControl control{};
  if (bytes.size() != sizeof control) {
    return fail(PLEXUS_REMOTE_ERROR, "its control message has {} bytes instead of {}", bytes.size(),
                sizeof control);
  }
  std::memcpy(&control, bytes.data(), sizeof control);
  const bool has_info = control.type == static_cast<uint32_t>(ControlType::kRailOffer) ||
                        control.type == static_cast<uint32_t>(ControlType::kRailAnswer);
  if (control.type < 1 || control.type > kControlTypeMax || control.rail >= kRailsMax ||
      (has_info && !is_sane_rail(control.info))) {
    return fail(PLEXUS_REMOTE_ERROR, "its control message of type {} has invalid numbers",
                control.type);
  }
  return control;
}

std::string readable(std::span<const char> text) {
  std::string result(text.begin(), std::find(text.begin(), text.end(), '\0'));
  std::replace_if(
      result.begin(), result.end(), [](unsigned char c) { return std::isprint(c) == 0; }, '?');
  return result;
}

void write_text(std::span<char> target, const std::string& text) {
  std::fill(target.begin(), target.end(), '\0');
  std::copy_n(text.begin(), std::min(text.size(), target.size() - 1), target.begin());
}

uint32_t Immediate::pack() const noexcept {
  const uint32_t common =
      round % kImmediateRounds << kRoundShift | request << kRequestShift | buffer << kBufferShift;
  return is_short ? common | size_bytes
                  : common | uint32_t{1} << kLongBit | part << kPartShift | (parts - 1);
}

Immediate Immediate::unpack(uint32_t bits) noexcept {
  Immediate result;
  result.is_short = bits >> kLongBit == 0;
  result.round = bits >> kRoundShift & (kImmediateRounds - 1);
  result.request = bits >> kRequestShift & (kRequests - 1);
  result.buffer = bits >> kBufferShift & (PLEXUS_NET_RECVS_MAX - 1);
  if (result.is_short) {
    result.size_bytes = bits & static_cast<uint32_t>(kShortBytesMax);
  } else {
    result.part = bits >> kPartShift & kPartMask;
    result.parts = (bits & kPartMask) + 1;
  }
  return result;
}

uint32_t count_parts(uint64_t size_bytes, uint32_t lanes, uint64_t part_bytes_min) noexcept {
  if (size_bytes <= part_bytes_min) {
    return 1;  // most messages, without a division
  }
  const uint64_t wanted = size_bytes / std::max<uint64_t>(part_bytes_min, 1);
  return static_cast<uint32_t>(
      std::clamp<uint64_t>(wanted, 1, std::min<uint32_t>(std::max(lanes, 1U), kPartsMax)));
}

Part cut_part(uint64_t size_bytes, uint32_t count, uint32_t index) noexcept {
  if (count == 1) {
    return {0, size_bytes};
  }
  const uint64_t each = round_up((size_bytes + count - 1) / count, kPartAlignment);
  const uint64_t begin = std::min(size_bytes, index * each);
  const uint64_t end = index + 1 == count ? size_bytes : std::min(size_bytes, begin + each);
  return {begin, end - begin};
}

}  // namespace plexus::net_ib
