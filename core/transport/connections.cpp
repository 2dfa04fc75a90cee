// SPDX-License-Identifier: Apache-2.0
#include "core/transport/connections.hpp"

#include <algorithm>
#include <thread>

#include "core/base/log.hpp"
#include "core/base/units.hpp"
#include "core/transport/net.hpp"
#include "core/transport/p2p.hpp"
#include "core/transport/shm.hpp"
#include "core/transport/xdc.hpp"

namespace plexus {

ConnectionSet::~ConnectionSet() {
  const auto& infos = *options_.infos;
  const PeerInfo& mine = infos[static_cast<size_t>(options_.rank)];
  const auto here = std::count_if(infos.begin(), infos.end(), [&](const PeerInfo& info) {
    return info.host_hash == mine.host_hash && info.process_id == mine.process_id;
  });
  options_.rendezvous->leave(options_.group, options_.rank, static_cast<int>(here));
}

TransportKind ConnectionSet::transport_to(int peer) const {
  const auto& infos = *options_.infos;
  if (static_cast<size_t>(peer) >= infos.size()) {
    return TransportKind::kCollnet;
  }
  return choose_transport(infos[static_cast<size_t>(options_.rank)],
                          infos[static_cast<size_t>(peer)]);
}

ConnectionEnd& ConnectionSet::find_or_make(const ConnectionKey& key) {
  auto& end = ends_[key];
  if (end == nullptr) {
    end = make(key);
    if (key.sends) {
      PLEXUS_INFO(kP2p, "comm {:#x} rank {} index {} -> rank {} via {}", options_.group,
                  options_.rank, key.index, key.peer, name(transport_to(key.peer)));
    }
  }
  return *end;
}

std::unique_ptr<ConnectionEnd> ConnectionSet::make(const ConnectionKey& key) {
  if (transport_to(key.peer) == TransportKind::kCollnet) {
    return make_collnet(key);
  }
  const PeerInfo& mine = (*options_.infos)[static_cast<size_t>(options_.rank)];
  const PeerInfo& peers = (*options_.infos)[static_cast<size_t>(key.peer)];
  const bool direct = mine.p2p_direct_disable == 0 && peers.p2p_direct_disable == 0;
  const bool any_cuda = mine.on_cuda() || peers.on_cuda();
  // What one side computes on must be able to read what the other side computes on.
  const bool borrows = direct && (!any_cuda || reach_each_other(mine, peers));
  const bool maps = direct && !any_cuda && mine.local_register != 0 && peers.local_register != 0;
  const size_t stride = options_.slot_bytes;
  DeviceRuntime* const runtime = own_runtime();
  switch (transport_to(key.peer)) {
    case TransportKind::kDirect: {
      FifoHome home{.runtime = any_cuda ? options_.runtime : nullptr,
                    .user = std::max(mine.device, peers.device)};
      const bool reach = reach_each_other(mine, peers);
      if (reach) {
        home.device = key.sends ? peers.device : mine.device;
      }
      return std::make_unique<DirectEnd>(
          key, DirectEnd::Options{.rendezvous = options_.rendezvous,
                                  .group = options_.group,
                                  .rank = options_.rank,
                                  .slot_stride = stride,
                                  .borrows = borrows,
                                  .device = mine.device,
                                  .peer_device = reach ? peers.device : -1,
                                  .home = home});
    }
    case TransportKind::kP2p:
      if (key.sends) {
        return std::make_unique<P2pSend>(key, P2pSend::Options{.exchange = options_.exchange,
                                                               .runtime = runtime,
                                                               .device = mine.device,
                                                               .slot_stride = stride,
                                                               .borrows = borrows});
      }
      return std::make_unique<P2pRecv>(key, P2pRecv::Options{.exchange = options_.exchange,
                                                             .runtime = runtime,
                                                             .device = mine.device,
                                                             .slot_stride = stride,
                                                             .borrows = borrows});
    case TransportKind::kShm:
      if (key.sends) {
        return std::make_unique<ShmSend>(key, ShmSend::Options{.exchange = options_.exchange,
                                                               .slot_stride = stride,
                                                               .borrows = maps,
                                                               .runtime = runtime,
                                                               .device = mine.device});
      }
      return std::make_unique<ShmRecv>(key, ShmRecv::Options{.exchange = options_.exchange,
                                                             .slot_stride = stride,
                                                             .runtime = runtime,
                                                             .device = mine.device});
    case TransportKind::kNet:
    case TransportKind::kCollnet:
      break;
  }
  return make_net(key);
}

std::unique_ptr<ConnectionEnd> ConnectionSet::make_collnet(const ConnectionKey& key) {
  auto& channel = channels_[{key.peer, key.index}];
  if (channel == nullptr) {
    const int network = key.peer - static_cast<int>(options_.infos->size());
    constexpr uint64_t kTag = uint64_t{1}
                              << 63;  // control messages of no connection between two ranks
    constexpr int kHalf = 32;
    const auto number = static_cast<uint64_t>(network);
    channel = std::make_shared<CollnetChannel>(CollnetChannelOptions{
        .exchange = options_.exchange,
        .context = collnet_,
        .slot_bytes = options_.slot_bytes,
        .device = static_cast<uint32_t>(number % collnet_->devices().size()),
        .members = network_members_(key.index / 2, network),
        .rank = options_.rank,
        .tag = kTag | number << kHalf | static_cast<uint64_t>(key.index),
        .runtime = own_runtime(),
        .on_device = (*options_.infos)[static_cast<size_t>(options_.rank)].device});
  }
  return std::make_unique<CollnetEnd>(key, channel);
}

namespace {

/// Twice what is on the way there and back, so that acknowledgements that come late cost nothing.
uint32_t window_of(const ConnectionSet::XdcLink& link, uint32_t slot_bytes) {
  constexpr uint32_t kWindowUnknown = 16;  // of 128 KiB: 2 MiB
  constexpr uint64_t kWindowMax = 512;
  constexpr double kBytesPerMbitNs = 1e6 / 8 / 1e9;
  if (link.mbit_per_s == 0 || link.latency_ns == 0) {
    return kWindowUnknown;
  }
  const double bytes = 2 * 2 * static_cast<double>(link.latency_ns) *
                       static_cast<double>(link.mbit_per_s) * kBytesPerMbitNs;
  const double messages = bytes / slot_bytes + 2;
  return static_cast<uint32_t>(std::clamp(messages, double{kSlots}, double{kWindowMax}));
}

/// A kernel lets the window of each socket grow from little, halves it for a packet that is lost,
/// and lets none grow beyond some MiB.
uint32_t sockets_of(uint32_t window, uint32_t slot_bytes) {
  constexpr uint64_t kBytesOfSocket = 1_MiB;
  constexpr uint64_t kSocketsMax = 4;
  return static_cast<uint32_t>(
      std::clamp(uint64_t{window} * slot_bytes / kBytesOfSocket, uint64_t{1}, kSocketsMax));
}

/// A slow link is silent as long as a message takes, of each of the ranks that may share it.
std::chrono::milliseconds patience_of(const ConnectionSet::XdcLink& link,
                                      uint32_t slot_bytes,
                                      std::chrono::milliseconds least) {
  constexpr uint64_t kSharers = 16;
  const uint64_t message_us = link.mbit_per_s == 0 ? 0 : slot_bytes * 8 / link.mbit_per_s;
  const auto slow = std::chrono::microseconds(message_us * kSharers + 4 * link.latency_ns / 1000);
  return std::max(least, std::chrono::duration_cast<std::chrono::milliseconds>(slow));
}

}  // namespace

std::unique_ptr<ConnectionEnd> ConnectionSet::make_xdc(const ConnectionKey& key,
                                                       const XdcLink& link) const {
  const auto channel = static_cast<uint32_t>(key.index / 2);
  auto paths =
      options_.nets->find_paths(options_.rank, key.sends ? options_.rank : key.peer,
                                key.sends ? key.peer : options_.rank, channel, *options_.infos);
  if (paths.has_error()) {
    return std::make_unique<UnreachableEnd>(key, std::move(paths).error());
  }
  const PeerInfo& peers = (*options_.infos)[static_cast<size_t>(key.peer)];
  const uint32_t window = window_of(link, options_.slot_bytes);
  XdcEndOptions options{
      .exchange = options_.exchange,
      .paths = std::move(paths).value(),
      .slot_bytes = options_.slot_bytes,
      .window = window,
      .sockets = sockets_of(window, options_.slot_bytes),
      .patience = patience_of(link, options_.slot_bytes, xdc_patience_),
      .peer_name = fmt::format("rank {} ({}:{})", key.peer, peers.host, peers.pid),
      .runtime = own_runtime(),
      .device = (*options_.infos)[static_cast<size_t>(options_.rank)].device};
  if (key.sends) {
    return std::make_unique<XdcSendEnd>(key, std::move(options));
  }
  return std::make_unique<XdcRecvEnd>(key, std::move(options));
}

/// nullptr: this rank computes on the host.
DeviceRuntime* ConnectionSet::own_runtime() const {
  return (*options_.infos)[static_cast<size_t>(options_.rank)].on_cuda() ? options_.runtime
                                                                         : nullptr;
}

void ConnectionSet::settle(Deadline end) noexcept {
  const auto settled = [](const auto& entry) { return entry.second->settled(); };
  while (!std::all_of(ends_.begin(), ends_.end(), settled) && !end.expired()) {
    for (const auto& [key, each] : ends_) {
      if (each->connected() && each->has_pump() && each->progress_pump().has_error()) {
        return;
      }
    }
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
}

std::unique_ptr<ConnectionEnd> ConnectionSet::make_net(const ConnectionKey& key) {
  const PeerInfo& mine = (*options_.infos)[static_cast<size_t>(options_.rank)];
  const PeerInfo& peers = (*options_.infos)[static_cast<size_t>(key.peer)];
  const auto xdc = xdc_links_ == nullptr ? std::nullopt : xdc_links_(key.peer);
  if (xdc.has_value()) {
    return make_xdc(key, *xdc);
  }
  const auto channel = static_cast<uint32_t>(key.index / 2);
  const int source = key.sends ? options_.rank : key.peer;
  const int target = key.sends ? key.peer : options_.rank;
  auto path = options_.nets->find_path(options_.rank, source, target, channel, *options_.infos);
  if (path.has_error()) {
    return std::make_unique<UnreachableEnd>(key, std::move(path).error());
  }
  bool& gdr_refused = gdr_refused_[{path.value().context, path.value().device}];
  NetEndOptions options{
      .exchange = options_.exchange,
      .path = std::move(path).value(),
      .slot_bytes = options_.slot_bytes,
      .peer_name = fmt::format("rank {} ({}:{})", key.peer, peers.host, peers.pid),
      .runtime = own_runtime(),
      .device = mine.device,
      .gdr_refused = &gdr_refused};
  if (key.sends) {
    return std::make_unique<NetSendEnd>(key, std::move(options));
  }
  return std::make_unique<NetRecvEnd>(key, std::move(options));
}

}  // namespace plexus
