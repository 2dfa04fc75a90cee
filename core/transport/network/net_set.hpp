// SPDX-License-Identifier: Apache-2.0
// The open networks of one rank, and what all ranks of its communicator offer: finds the path to a
// peer. Life: made with the networks that core/plugin opened; `learn_offers`, then `learn_paths`
// with what the other ranks published; from then on constant.
//
//   NetSet nets(std::move(opened));
//   PLEXUS_TRY(offers, exchange.all_gather(nets.offers()));
//   PLEXUS_TRY(nets.learn_offers(offers));
//   return ok();
#pragma once

#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/control/gathered.hpp"
#include "core/peers/peer_info.hpp"
#include "core/plugin/registry.hpp"
#include "core/transport/network/net_route.hpp"

namespace plexus {

/// How one rank uses its GPU's memory with a network device. Kinds: PLEXUS_MEMORY_* masks to
/// register slots as, 0: they are in host memory.
struct GpuSlots {
  uint32_t send_kinds = 0;
  uint32_t recv_kinds = 0;
  bool flushes = true;  // what is received
};

/// Threads: const members are safe from any.
class NetSet {
 public:
  /// `gpu_slots`: [nets][devices]; shorter, or empty: none.
  explicit NetSet(std::vector<OpenNet> nets, std::vector<std::vector<GpuSlots>> gpu_slots = {})
      : nets_(std::move(nets)), gpu_slots_(std::move(gpu_slots)) {}

  /// The preferred one; nullptr: this rank has none.
  [[nodiscard]] NetContext* first() { return nets_.empty() ? nullptr : &nets_.front().context; }
  /// What this rank publishes: its networks by name, with their devices.
  [[nodiscard]] std::string offers() const;
  /// [nranks] by rank.
  [[nodiscard]] Result<void> learn_offers(const Gathered& blobs);
  struct MessageLimit {
    uint64_t bytes;
    std::string net;
    std::string device;
  };
  /// The longest message that all devices of all ranks carry, and the first device that carries no
  /// longer one; nullopt: no rank has a network.
  [[nodiscard]] std::optional<MessageLimit> message_limit() const;
  /// True when some rank knows which fabric a device is in: only then paths are worth an exchange.
  [[nodiscard]] bool knows_fabrics() const;
  /// What `rank` (this one) publishes of paths: a network's are told by the first rank that has it,
  /// so that all decide from one answer. Empty for the others.
  [[nodiscard]] Result<std::string> paths(int rank) const;
  [[nodiscard]] Result<void> learn_paths(const Gathered& blobs);

  /// One end's part of a route.
  struct Path {
    NetContext* context;
    uint32_t device;
    std::string route;       // as describe_route says: the same at both ends
    bool apart = false;      // headers of messages, from their payload
    uint32_t gpu_kinds = 0;  // for this end's slots, as in GpuSlots
    bool flushes = false;
  };
  /// For data of `channel` from rank `source` to rank `target`, one of which is `rank`: this one.
  [[nodiscard]] Result<Path> find_path(
      int rank, int source, int target, uint32_t channel, std::span<const PeerInfo> infos);
  /// The same, and all others after it: see list_routes. At least one.
  [[nodiscard]] Result<std::vector<Path>> find_paths(
      int rank, int source, int target, uint32_t channel, std::span<const PeerInfo> infos);

 private:
  [[nodiscard]] std::set<uint64_t> fabrics_of(std::string_view name) const;
  [[nodiscard]] NetOffer offer_of(size_t net) const;
  [[nodiscard]] GpuSlots gpu_slots_of(size_t net, uint32_t device) const;
  [[nodiscard]] Path path_of(const NetRoute& route,
                             bool sends,
                             const NetOffers& from,
                             const NetOffers& to);

  std::vector<OpenNet> nets_;
  std::vector<std::vector<GpuSlots>> gpu_slots_;  // [nets][devices]
  std::vector<NetOffers> kinds_;                  // distinct offers of ranks
  std::vector<uint32_t> kind_of_;                 // [nranks]: which of them
  FabricPaths paths_;
};

}  // namespace plexus
