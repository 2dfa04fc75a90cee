// SPDX-License-Identifier: Apache-2.0
#include "core/transport/peer_info.hpp"

#include <cstring>
#include <type_traits>

namespace plexus {

static_assert(std::is_trivially_copyable_v<PeerInfo>);

std::string PeerInfo::to_bytes() const {
  std::string bytes(sizeof(PeerInfo), '\0');
  std::memcpy(bytes.data(), this, sizeof(PeerInfo));
  return bytes;
}

Result<PeerInfo> PeerInfo::from_bytes(std::string_view bytes) {
  if (bytes.size() != sizeof(PeerInfo)) {
    return fail(
        Code::kInvalidUsage,
        "a rank described itself in {} bytes where {} are expected: use the same version of "
        "Plexus on all ranks",
        bytes.size(), sizeof(PeerInfo));
  }
  PeerInfo info;
  std::memcpy(&info, bytes.data(), sizeof(PeerInfo));
  info.algorithms[sizeof(info.algorithms) - 1] = '\0';
  info.protocols[sizeof(info.protocols) - 1] = '\0';
  info.host[sizeof(info.host) - 1] = '\0';
  return info;
}

const char* name(TransportKind kind) {
  switch (kind) {
    case TransportKind::kLocal:
      return "direct";
    case TransportKind::kShm:
      return "shm";
    case TransportKind::kNet:
      return "net";
    case TransportKind::kCollnet:
      return "collnet";
  }
  return "?";
}

TransportKind choose_transport(const PeerInfo& a, const PeerInfo& b) {
  const bool same_host = a.host_hash == b.host_hash;
  if (same_host && a.process_id == b.process_id && a.p2p_disable == 0 && b.p2p_disable == 0) {
    return TransportKind::kLocal;
  }
  if (same_host && a.pid_namespace == b.pid_namespace && a.shm_disable == 0 && b.shm_disable == 0) {
    return TransportKind::kShm;
  }
  return TransportKind::kNet;
}

}  // namespace plexus
