// SPDX-License-Identifier: Apache-2.0
#include "core/peers/peer_info.hpp"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <type_traits>

#include "core/base/bytes.hpp"
#include "core/base/hash.hpp"

namespace plexus {

static_assert(std::is_trivially_copyable_v<PeerInfo>);

namespace {

/// Calls `visit` with each field that is a rank's own.
template <class Info, class Visit>
void visit_own(Info& info, const Visit& visit) {
  visit(info.process_id);
  visit(info.host_hash);
  visit(info.pid_namespace);
  visit(info.pid);
  visit(info.core_set);
  visit(info.mark_address);
  visit(info.shown_fd);
  visit(info.numa);
  visit(info.device);
  if (info.on_cuda()) {
    visit(info.device_uuid);
    visit(info.reached_devices);
    visit(info.bus_id);
  }
}

}  // namespace

std::string PeerInfo::own_bytes() const {
  ByteWriter writer;
  visit_own(*this, [&](const auto& field) { writer.put(field); });
  return writer.take();
}

std::string PeerInfo::common_bytes() const {
  PeerInfo common;
  std::memcpy(&common, this, sizeof(common));  // with its padding, so that equal ones are equal
  visit_own(common, [](auto& field) { std::memset(&field, 0, sizeof(field)); });
  std::memset(common.host, 0, sizeof(common.host));
  return {reinterpret_cast<const char*>(&common), sizeof(common)};
}

Result<PeerInfo> PeerInfo::from_bytes(std::string_view own, std::string_view common) {
  PeerInfo info;
  ByteReader reader(own);
  if (common.size() == sizeof(info)) {
    std::memcpy(&info, common.data(), sizeof(info));
    visit_own(info, [&](auto& field) {
      const std::string_view bytes = reader.take_bytes(sizeof(field));
      if (!reader.broken()) {
        std::memcpy(&field, bytes.data(), bytes.size());
      }
    });
  }
  if (common.size() != sizeof(info) || !reader.whole()) {
    return fail(Code::kInvalidUsage,
                "a rank sent a description of itself of {} and {} bytes, expected {} and {}: use "
                "the same version of Plexus on all ranks",
                own.size(), common.size(), info.own_bytes().size(), sizeof(info));
  }
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
  const bool can_share = a.process_id == b.process_id || (a.ipc_disable == 0 && b.ipc_disable == 0);
  return a.on_cuda() && b.on_cuda() && a.host_hash == b.host_hash && can_share &&
         a.p2p_disable == 0 && b.p2p_disable == 0 && reaches(a, b) && reaches(b, a);
}

}  // namespace plexus
