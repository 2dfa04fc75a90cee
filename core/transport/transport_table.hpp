// SPDX-License-Identifier: Apache-2.0
// The transports: which of them connects two ranks, and how its ends are made. Each is one row of
// the table in transport_table.cpp.
//
//   return name(choose_transport({.mine = mine, .peers = &peers}));  // "direct", "shm", ...
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/control/exchange.hpp"
#include "core/device/device_runtime.hpp"
#include "core/peers/peer_info.hpp"
#include "core/transport/connection.hpp"

namespace plexus {

class CollnetChannel;
class CollnetContext;
class LocalRendezvous;
class NetContext;
class NetSet;
class RegisteredMemory;
class XdcRoutes;

enum class TransportKind : uint8_t { kDirect, kP2p, kShm, kXdc, kNet, kCollnet };
const char* name(TransportKind kind);

/// The two ends of a connection, in any order.
struct RankPair {
  const PeerInfo& mine;
  const PeerInfo* peers = nullptr;   // nullptr: the peer is a network that reduces
  bool crosses_datacenters = false;  // as far as that is known
};

/// The best transport of two ranks (symmetric). Pure.
TransportKind choose_transport(const RankPair& pair);

/// What is known of the path to a peer in another datacenter; 0: not known.
struct XdcLink {
  uint64_t mbit_per_s = 0;
  uint64_t latency_ns = 0;
  uint32_t datacenter = 0;  // the peer's
};

/// What became of a rank's connections to other datacenters. Threads: any.
struct LinkCounts {
  /// How often one went on after a loss, by another path or anew.
  std::atomic<uint64_t> failovers{0};
  /// Messages under way at these losses, which were sent again.
  std::atomic<uint64_t> resent{0};
  /// Of the end that sends.
  void note_failover(uint64_t messages) noexcept {
    failovers.fetch_add(1, std::memory_order_relaxed);
    resent.fetch_add(messages, std::memory_order_relaxed);
  }
};

/// What the ends of one rank are made with. Everything borrowed outlives them.
struct TransportContext {
  int rank = 0;
  const std::vector<PeerInfo>* infos = nullptr;  // [nranks]
  uint64_t group = 0;
  Exchange* exchange = nullptr;
  LocalRendezvous* rendezvous = nullptr;
  NetSet* nets = nullptr;                  // null: no rank needs a network
  RegisteredMemory* registered = nullptr;  // nullptr: networks send from their own memory only
  uint32_t slot_bytes = 0;
  uint32_t life = 0;    // how often all connections were closed before: see ConnectionSet::close()
  bool attach = false;  // ranks of one host read each other's memory by system calls (agreed)
  DeviceRuntime* runtime = nullptr;  // not null when one of the ranks of this process is on CUDA
  /// nullopt: `peer` is in this rank's datacenter. Empty: there is one datacenter.
  std::function<std::optional<XdcLink>(int peer)> xdc_link = {};
  std::chrono::milliseconds xdc_patience{0};
  std::chrono::milliseconds xdc_retry{0};
  /// How much of the way to a datacenter is left: see XdcRoutes::Changed.
  std::function<void(uint32_t datacenter, uint32_t share)> on_xdc_share = {};
  LinkCounts* link_counts = nullptr;
  CollnetContext* collnet = nullptr;
  /// The ranks, one of each host, that meet in peer nranks + network.
  std::function<std::vector<int>(int channel, int network)> collnet_members = {};
};

/// What ends of one rank share.
struct SharedByEnds {
  std::map<std::pair<int, int>, std::shared_ptr<CollnetChannel>> channels;  // by peer and index
  std::shared_ptr<XdcRoutes> xdc_routes = nullptr;  // nullptr: there is one datacenter
  /// Network devices (network, number) that refused GPU memory: do not try again.
  std::map<std::pair<const NetContext*, uint32_t>, bool> gdr_refused;
};

/// An end that is to be made.
struct EndRequest {
  EndId id;
  const TransportContext& context;
  SharedByEnds& shared;
  const PeerInfo& mine;
  const PeerInfo* peers = nullptr;  // as in RankPair
  /// nullptr: this rank computes on the host.
  [[nodiscard]] DeviceRuntime* own_runtime() const {
    return mine.on_cuda() ? context.runtime : nullptr;
  }
  /// True when what one rank computes on may read what the other computes on.
  [[nodiscard]] bool may_borrow() const;
};

/// One transport. Rows are asked in the order of the table.
struct TransportRow {
  TransportKind kind;
  const char* name;
  bool (*connects)(const RankPair& pair);
  // nullptr: it has no ends for such ranks, and connects none.
  std::unique_ptr<SendEnd> (*make_send)(EndRequest& request);
  std::unique_ptr<RecvEnd> (*make_recv)(EndRequest& request);
  std::unique_ptr<DeviceEnd> (*make_on_device)(EndRequest& request);
};
const TransportRow& row_of(TransportKind kind);

/// An end that nothing can connect: connecting says why.
template <class End>
class UnreachableEnd final : public End {
 public:
  UnreachableEnd(EndId id, Error why) : End(std::move(id)), why_(std::move(why)) {}

 private:
  Result<bool> try_connect() override { return why_.clone(); }
  [[nodiscard]] std::string route() const override { return "nothing"; }
  Error why_;
};

}  // namespace plexus
