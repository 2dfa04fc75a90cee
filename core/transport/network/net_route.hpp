// SPDX-License-Identifier: Apache-2.0
// Which network and which two devices carry the data from one rank to another, when ranks have
// several networks. Every rank publishes its networks by name; the choice is a pure function of
// what the two ends published, so that both come to the same one without a word.
//
// Called by core/transport/network/net_set; nothing here opens or reads anything.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "core/base/result.hpp"
#include "core/plugin/descriptor.hpp"

namespace plexus {

/// nullopt: the plugin does not know.
struct NetDeviceOffer {
  std::string name;
  std::optional<uint64_t> fabric_id;
  std::optional<uint32_t> rail_id;   // devices of one rail reach each other best
  std::optional<uint32_t> plane_id;  // devices of different planes do not reach each other
  uint64_t message_bytes_max = PLEXUS_NET_MESSAGE_BYTES_MAX;
  bool reads_gpu = false;   // the rank's messages are to be sent from its GPU's memory
  bool writes_gpu = false;  // and received there
  friend bool operator==(const NetDeviceOffer&, const NetDeviceOffer&) = default;
};

struct NetOffer {
  std::string name;  // compared in any case; once per rank
  std::vector<NetDeviceOffer> devices;
  friend bool operator==(const NetOffer&, const NetOffer&) = default;
};

/// The networks of one rank, in its order of preference. Empty: it has none, or needs none.
using NetOffers = std::vector<NetOffer>;

inline constexpr size_t kNetsMax = 16;         // a rank has at most so many
inline constexpr size_t kNetDevicesUsed = 64;  // of a network at most: more than there are channels

[[nodiscard]] std::string encode_offers(const NetOffers& offers);
/// What a rank of the same library version encoded; everything is checked.
[[nodiscard]] Result<NetOffers> decode_offers(std::string_view bytes);

/// What networks say of the ways between their fabrics: one answer for all ranks.
class FabricPaths {
 public:
  void add(std::string_view net, uint64_t source, uint64_t target, const NetPath& path);
  /// A path of which nothing is known counts as connected.
  [[nodiscard]] NetPath find(std::string_view net,
                             std::optional<uint64_t> source,
                             std::optional<uint64_t> target) const;
  [[nodiscard]] std::string encode() const;
  /// Adds what another rank encoded.
  [[nodiscard]] Result<void> decode(std::string_view bytes);

 private:
  std::map<std::tuple<std::string, uint64_t, uint64_t>, NetPath> paths_;  // net in lower case
};

/// Networks and devices by number, in the offers of their ends.
struct NetRoute {
  size_t source_net = 0;
  size_t target_net = 0;
  uint32_t source_device = 0;
  uint32_t target_device = 0;
  friend bool operator==(const NetRoute&, const NetRoute&) = default;
};

/// The route for `channel` from `source` to `target`; nullopt: they have no network in common, or
/// no devices that reach each other.
///
/// Among the networks that both have and in which some devices reach each other, it is the one with
/// the cheapest path: nearest, then widest, then quickest, each as far as all of them know it; else
/// the one that comes first in the lists of both. Within it, channels take turns over the devices
/// with the best paths: of the same rail where rails are known, else the one with the same number.
[[nodiscard]] std::optional<NetRoute> choose_route(const NetOffers& source,
                                                   const NetOffers& target,
                                                   const FabricPaths& paths,
                                                   uint32_t channel);

/// All routes for `channel`, for who goes on when one is lost: first that of choose_route, then
/// those that share no device with it, then the others; at most kRoutesMax.
[[nodiscard]] std::vector<NetRoute> list_routes(const NetOffers& source,
                                                const NetOffers& target,
                                                const FabricPaths& paths,
                                                uint32_t channel);
inline constexpr size_t kRoutesMax = 8;

/// True when one end of the route moves payloads from or to GPU memory. Then the header of
/// a message travels apart from its payload, also where the payload is in host memory after all.
[[nodiscard]] bool travels_apart(const NetRoute& route,
                                 const NetOffers& source,
                                 const NetOffers& target);

/// "Socket 0 (eth0) > 1 (eth1)": what both ends compare when they connect, and users read.
[[nodiscard]] std::string describe_route(const NetRoute& route,
                                         const NetOffers& source,
                                         const NetOffers& target);
/// "Socket (eth0, eth1), TcpNew (loop0)", "none".
[[nodiscard]] std::string describe_offers(const NetOffers& offers);

}  // namespace plexus
