// SPDX-License-Identifier: Apache-2.0
// All connection ends of one rank, made when a plan first needs them. Which transport serves a peer
// was decided at init from the exchanged PeerInfos.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "core/base/clock.hpp"
#include "core/base/result.hpp"
#include "core/bootstrap/exchange.hpp"
#include "core/transport/collnet.hpp"
#include "core/transport/connection.hpp"
#include "core/transport/direct.hpp"
#include "core/transport/net_set.hpp"
#include "core/transport/peer_info.hpp"

namespace plexus {

/// Threads: one at a time.
class ConnectionSet {
 public:
  struct Options {
    int rank = 0;
    const std::vector<PeerInfo>* infos = nullptr;  // [nranks]
    uint64_t group = 0;
    Exchange* exchange = nullptr;
    LocalRendezvous* rendezvous = nullptr;
    NetSet* nets = nullptr;  // null: no rank needs a network
    uint32_t slot_bytes = 0;
    DeviceRuntime* runtime = nullptr;  // not null when one of the ranks of this process is on CUDA
  };
  explicit ConnectionSet(const Options& options) : options_(options) {}
  ~ConnectionSet();
  ConnectionSet(const ConnectionSet&) = delete;
  ConnectionSet& operator=(const ConnectionSet&) = delete;

  /// `members(channel, network)`: the ranks, one of each host, that meet in peer nranks + network.
  using NetworkMembers = std::function<std::vector<int>(int channel, int network)>;
  void use_collnet(CollnetContext* context, NetworkMembers members) {
    collnet_ = context;
    network_members_ = std::move(members);
  }

  /// What is known of the path to a peer in another datacenter; 0: not known.
  struct XdcLink {
    uint64_t mbit_per_s = 0;
    uint64_t latency_ns = 0;
  };
  /// `link(peer)`: nullopt for a peer in this rank's datacenter.
  using XdcLinks = std::function<std::optional<XdcLink>(int peer)>;
  void use_xdc(XdcLinks links, std::chrono::milliseconds patience) {
    xdc_links_ = std::move(links);
    xdc_patience_ = patience;
  }
  /// Pumps until all messages of calls that are over have arrived, or `end`. Errors end it too:
  /// what is lost is then the peer's to report.
  void settle(Deadline end) noexcept;

  /// The end for `key`, not connected yet when it is new.
  ConnectionEnd& find_or_make(const ConnectionKey& key);
  [[nodiscard]] TransportKind transport_to(int peer) const;

 private:
  [[nodiscard]] DeviceRuntime* own_runtime() const;
  [[nodiscard]] std::unique_ptr<ConnectionEnd> make(const ConnectionKey& key);
  [[nodiscard]] std::unique_ptr<ConnectionEnd> make_net(const ConnectionKey& key);
  [[nodiscard]] std::unique_ptr<ConnectionEnd> make_xdc(const ConnectionKey& key,
                                                        const XdcLink& link) const;

  [[nodiscard]] std::unique_ptr<ConnectionEnd> make_collnet(const ConnectionKey& key);

  Options options_;
  CollnetContext* collnet_ = nullptr;
  NetworkMembers network_members_;
  XdcLinks xdc_links_;
  std::chrono::milliseconds xdc_patience_{0};
  std::map<std::pair<int, int>, std::shared_ptr<CollnetChannel>> channels_;  // by peer and index
  /// By network and device: GPU memory was to be registered, and was refused.
  std::map<std::pair<const NetContext*, uint32_t>, bool> gdr_refused_;
  std::map<ConnectionKey, std::unique_ptr<ConnectionEnd>> ends_;
};

}  // namespace plexus
