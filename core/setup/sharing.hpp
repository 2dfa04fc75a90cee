// SPDX-License-Identifier: Apache-2.0
// Whether ranks of one host can map each other's memory, found by trying: containers, namespaces
// and limits keep some from it. Those that cannot use the network instead.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/os/shared_memory.hpp"
#include "core/peers/peer_info.hpp"
#include "core/setup/group_cache.hpp"

namespace plexus {

/// Memory of this process that peers try to map, until what is returned goes; its place is noted in
/// `info`. nullptr: the system refuses it.
std::shared_ptr<const SharedMemory> show_memory(GroupCache<SharedMemory>& shown,
                                                uint64_t group,
                                                PeerInfo& info);

/// Why a connection's slots of so many bytes cannot be made in shared memory; "": they can.
std::string why_no_slots(size_t slots_bytes);

/// What a rank found.
struct SharingReport {
  // What the others see of its process:
  uint64_t user_namespace = 0;
  uint32_t user = 0;
  uint8_t is_dumpable = 1;
  /// Peers whose memory it cannot map, ascending; itself: it can make none.
  std::vector<uint32_t> refused = {};
  std::string why = {};  // of the first

  static constexpr size_t kWhyMax = 512;
};
/// Tries for `rank`, whose slots take `slots_bytes`.
SharingReport try_to_share(int rank, std::span<const PeerInfo> infos, size_t slots_bytes);
std::string encode(const SharingReport& report);
/// An Error: the bytes are no report in a communicator of `nranks` ranks.
Result<SharingReport> decode_sharing_report(std::string_view bytes, size_t nranks);

/// The fewest ranks, nearly, without which all others can map each other's memory; ascending.
std::vector<int> list_isolated(std::span<const SharingReport> reports);
/// Why, for the first of them.
std::string describe_isolation(std::span<const SharingReport> reports,
                               std::span<const PeerInfo> infos);

}  // namespace plexus
