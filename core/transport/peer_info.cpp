// SPDX-License-Identifier: Apache-2.0
#include "core/transport/peer_info.hpp"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <type_traits>

#include "core/base/hash.hpp"

namespace plexus {

static_assert(std::is_trivially_copyable_v<PeerInfo>);

std::string PeerInfo::to_bytes() const {
  std::string bytes(sizeof(PeerInfo), '\0');
  std::memcpy(bytes.data(), this, sizeof(PeerInfo));
  return bytes;
}

Result<PeerInfo> PeerInfo::from_bytes(std::string_view bytes) {
  if (bytes.size() != sizeof(PeerInfo)) {
    return fail(Code::kInvalidUsage,
                "a rank sent a description of itself of {} bytes, expected {}: use the same "
                "version of Plexus on all ranks",
                bytes.size(), sizeof(PeerInfo));
  }
  PeerInfo info;
  std::memcpy(&info, bytes.data(), sizeof(PeerInfo));
  info.algorithms[sizeof(info.algorithms) - 1] = '\0';
  info.protocols[sizeof(info.protocols) - 1] = '\0';
  info.host[sizeof(info.host) - 1] = '\0';
  info.bus_id[sizeof(info.bus_id) - 1] = '\0';
  return info;
}

std::string describe_rank(int rank, const PeerInfo& info) {
  return fmt::format("rank {} ({}:{})", rank, info.host, info.pid);
}

uint32_t hash_of_device(const uint8_t (&uuid)[16]) {
  Fnv1a hash;
  for (const uint8_t byte : uuid) {
    hash.mix(byte);
  }
  return static_cast<uint32_t>(hash.value() >> 32) | 1;
}

bool same_device(const PeerInfo& a, const PeerInfo& b) {
  return a.on_cuda() && b.on_cuda() && a.host_hash == b.host_hash &&
         std::equal(std::begin(a.device_uuid), std::end(a.device_uuid), std::begin(b.device_uuid));
}

uint32_t sharers_of(std::span<const PeerInfo> infos, const PeerInfo& info) {
  return static_cast<uint32_t>(std::count_if(
      infos.begin(), infos.end(), [&](const PeerInfo& other) { return same_device(info, other); }));
}

bool reach_each_other(const PeerInfo& a, const PeerInfo& b) {
  const auto reaches = [](const PeerInfo& from, const PeerInfo& to) {
    const auto& reached = from.reached_devices;
    return std::find(std::begin(reached), std::end(reached), hash_of_device(to.device_uuid)) !=
           std::end(reached);
  };
  return a.on_cuda() && b.on_cuda() && a.host_hash == b.host_hash && a.p2p_disable == 0 &&
         b.p2p_disable == 0 && reaches(a, b) && reaches(b, a);
}

}  // namespace plexus
