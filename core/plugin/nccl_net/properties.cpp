// SPDX-License-Identifier: Apache-2.0
#include "core/plugin/nccl_net/properties.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

namespace plexus::nccl_net {
namespace {

/// Copies as much of `text` as fits; replaces characters that are not printable.
void copy_text(std::string_view text, std::span<char> to) {
  const size_t size = std::min(text.size(), to.size() - 1);
  std::transform(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(size), to.begin(),
                 [](char c) { return c >= ' ' && c <= '~' ? c : '?'; });
  to[size] = '\0';
}

uint32_t at_least(int found, uint32_t least) {
  return found < 0 ? least : std::max(static_cast<uint32_t>(found), least);
}

/// Converts microseconds; 0 and implausible values mean unknown.
uint32_t latency_ns(float microseconds) {
  constexpr float kNsPerUs = 1000.0F;
  constexpr float kMost = 1e6F;  // one second; a larger number is taken for garbage
  if (!std::isfinite(microseconds) || microseconds <= 0 || microseconds > kMost) {
    return PLEXUS_UNKNOWN_U32;
  }
  return static_cast<uint32_t>(microseconds * kNsPerUs);
}

Result<void> check_usable(const nccl_net_properties_v12_t& raw, int device) {
  if (raw.device_type != NCCL_DEVICE_TYPE_HOST) {
    return fail(Code::kInvalidUsage,
                "device {} has to be driven by a GPU (netDeviceType {}), which Plexus does not "
                "support; disable that in the plugin's settings",
                device, raw.device_type);
  }
  if (raw.p2p_bytes_max == 0 || raw.p2p_bytes_max > NCCL_NET_BYTES_MAX) {
    return fail(Code::kInvalidUsage,
                "device {} reports maxP2pBytes = {}, expected 1..{}; this is a bug in the plugin",
                device, raw.p2p_bytes_max, NCCL_NET_BYTES_MAX);
  }
  constexpr int kAllMemory = NCCL_MEMORY_HOST | NCCL_MEMORY_CUDA | NCCL_MEMORY_DMABUF;
  if ((raw.pointer_support & kAllMemory) == 0) {
    return fail(Code::kInvalidUsage,
                "device {} reports ptrSupport = {:#x}, which has no known kind of memory; this is "
                "a bug in the plugin",
                device, raw.pointer_support);
  }
  return ok();
}

}  // namespace

Result<plexus_net_properties_t> convert_properties(const ForeignProperties& foreign,
                                                   int device,
                                                   uint32_t requests_max) {
  static_assert(NCCL_MEMORY_HOST == PLEXUS_MEMORY_HOST && NCCL_MEMORY_CUDA == PLEXUS_MEMORY_CUDA &&
                NCCL_MEMORY_DMABUF == PLEXUS_MEMORY_DMABUF);
  const nccl_net_properties_v12_t& raw = foreign.v12;
  PLEXUS_TRY(check_usable(raw, device));
  plexus_net_properties_t result{};
  const bool has_name = raw.name != nullptr && raw.name[0] != '\0';
  copy_text(has_name ? std::string(raw.name) : fmt::format("device{}", device), result.name);
  if (raw.pci_path != nullptr && std::strlen(raw.pci_path) < sizeof result.pci_path) {
    copy_text(raw.pci_path, result.pci_path);
  }
  result.guid = raw.guid == 0 ? PLEXUS_UNKNOWN_U64 : raw.guid;
  result.fabric_id = foreign.fabric_id.value_or(PLEXUS_UNKNOWN_U64);
  result.message_bytes_max = std::min<uint64_t>(raw.p2p_bytes_max, kMessageBytesMax);
  result.pointer_support = static_cast<uint32_t>(raw.pointer_support) &
                           (PLEXUS_MEMORY_HOST | PLEXUS_MEMORY_CUDA | PLEXUS_MEMORY_DMABUF);
  result.speed_mbit_per_s = raw.speed > 0 ? static_cast<uint32_t>(raw.speed) : PLEXUS_UNKNOWN_U32;
  result.latency_ns = latency_ns(raw.latency);
  result.port = at_least(raw.port, 0);
  result.comms_max = at_least(raw.comms_max, 1);
  result.recvs_max = std::min(at_least(raw.recvs_max, 1), PLEXUS_NET_RECVS_MAX);
  result.requests_max = requests_max;
  result.registration_is_global = raw.registration_is_global != 0 ? 1 : 0;
  result.force_flush = raw.force_flush != 0 ? 1 : 0;
  result.rail_id = std::max<int32_t>(raw.rail_id, -1);
  result.plane_id = std::max<int32_t>(raw.plane_id, -1);
  return result;
}

}  // namespace plexus::nccl_net
