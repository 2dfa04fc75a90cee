// SPDX-License-Identifier: Apache-2.0
// What other ranks say while a communicator is made: who they are, their networks, the paths
// between these, the channels of their hosts. Whatever is accepted can be used for any pair of
// ranks.
//
// Input: the first byte divides the rest into the two texts of a rank.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "core/peers/peer_info.hpp"
#include "core/topo/part.hpp"
#include "core/transport/network/net_route.hpp"

namespace plexus {
namespace {

void require(bool holds) {
  if (!holds) {
    std::abort();
  }
}

void fuzz(std::string_view bytes) {
  if (bytes.empty()) {
    return;
  }
  const auto part = static_cast<uint32_t>(
      std::min<size_t>(static_cast<uint8_t>(bytes.front()), bytes.size() - 1));
  bytes.remove_prefix(1);
  const std::string_view own = bytes.substr(0, part);
  const std::string_view common = bytes.substr(part);

  if (const auto info = PeerInfo::from_bytes(own, common); info.has_value()) {
    require(info.value().own_bytes() == own);
    const std::vector<PeerInfo> both = {info.value(), PeerInfo{}};
    (void)describe_rank(1, both.front());
    (void)reach_each_other(both.front(), both.back());
    require(sharers_of(both, both.front()) >= 1);
  }
  FabricPaths paths;
  (void)paths.decode(own);
  if (const auto offers = decode_offers(common); offers.has_value()) {
    require(offers.value().size() <= kNetsMax);
    require(encode_offers(offers.value()) == common);
    (void)describe_offers(offers.value());
    for (const NetOffer& offer : offers.value()) {
      require(std::all_of(offer.devices.begin(), offer.devices.end(), [](const auto& device) {
        return device.message_bytes_max <= PLEXUS_NET_MESSAGE_BYTES_MAX;
      }));
    }
    for (const NetRoute& route : list_routes(offers.value(), offers.value(), paths, part)) {
      require(route.source_net < offers.value().size());
      require(route.source_device < offers.value()[route.source_net].devices.size());
      require(route.target_net < offers.value().size());
      require(route.target_device < offers.value()[route.target_net].devices.size());
    }
  }
  const std::vector<HostRank> ranks = {
      {.rank = 2, .numa = 0}, {.rank = 3, .numa = 0}, {.rank = 5, .numa = 1}};
  if (const auto parts = decode_parts(bytes, ranks); parts.has_value()) {
    for (const PartChannels& one : parts.value()) {
      (void)expand(one);
    }
  }
}

}  // namespace
}  // namespace plexus

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  plexus::fuzz({reinterpret_cast<const char*>(data), size});
  return 0;
}
