// SPDX-License-Identifier: Apache-2.0
#include "core/transport/connections.hpp"

#include <algorithm>
#include <thread>
#include <vector>

#include <fmt/format.h>

#include "core/peers/reach.hpp"
#include "core/transport/memory/direct.hpp"
#include "core/transport/network/xdc_routes.hpp"
#include "guest/assert.hpp"

namespace plexus {

ConnectionSet::ConnectionSet(TransportContext context) : context_(std::move(context)) {
  if (context_.xdc_link != nullptr) {
    shared_.xdc_routes = std::make_shared<XdcRoutes>(context_.on_xdc_share);
  }
}

ConnectionSet::~ConnectionSet() {
  const auto& infos = *context_.infos;
  const auto here = std::count_if(infos.begin(), infos.end(), [&](const PeerInfo& info) {
    return share_process(info, mine());
  });
  context_.rendezvous->leave(context_.group, context_.rank, static_cast<int>(here));
}

const PeerInfo& ConnectionSet::mine() const {
  return (*context_.infos)[static_cast<size_t>(context_.rank)];
}

RankPair ConnectionSet::pair_with(int peer) const {
  const auto& infos = *context_.infos;
  if (static_cast<size_t>(peer) >= infos.size()) {
    return {.mine = mine(), .peers = nullptr};
  }
  return {
      .mine = mine(),
      .peers = &infos[static_cast<size_t>(peer)],
      .crosses_datacenters = context_.xdc_link != nullptr && context_.xdc_link(peer).has_value()};
}

TransportKind ConnectionSet::transport_to(int peer) const {
  return choose_transport(pair_with(peer));
}

template <class End, class Make>
End& ConnectionSet::find_or_make(Ends<End>& ends, const ConnectionKey& key, Make make) {
  auto at = ends.find(key);
  if (at == ends.end()) {
    PLEXUS_DCHECK(key.peer >= 0 && key.peer != context_.rank && key.index >= 0, key.peer,
                  key.index);
    const auto nranks = static_cast<int>(context_.infos->size());
    const RankPair pair = pair_with(key.peer);
    EndRequest request{
        .id = {.key = key,
               .group = context_.group,
               .rank = context_.rank,
               .peer_name = key.peer < nranks ? fmt::format("rank {}", key.peer)
                                              : fmt::format("network {}", key.peer - nranks)},
        .context = context_,
        .shared = shared_,
        .mine = mine(),
        .peers = pair.peers};
    at = ends.emplace(key, (row_of(choose_transport(pair)).*make)(request)).first;
  }
  return *at->second;
}

SendEnd& ConnectionSet::find_or_make_send(int peer, int index) {
  PLEXUS_DCHECK(on_device_.empty(), peer, on_device_.size());
  return find_or_make(sends_, {.peer = peer, .sends = true, .index = index},
                      &TransportRow::make_send);
}

RecvEnd& ConnectionSet::find_or_make_recv(int peer, int index) {
  PLEXUS_DCHECK(on_device_.empty(), peer, on_device_.size());
  return find_or_make(recvs_, {.peer = peer, .sends = false, .index = index},
                      &TransportRow::make_recv);
}

DeviceEnd& ConnectionSet::find_or_make_on_device(const ConnectionKey& key) {
  PLEXUS_DCHECK(sends_.empty() && recvs_.empty(), key.peer, sends_.size(), recvs_.size());
  return find_or_make(on_device_, key, &TransportRow::make_on_device);
}

template <class Visit>
void ConnectionSet::for_each(const Visit& visit) const {
  const auto visit_all = [&visit](const auto& ends) {
    for (const auto& [key, end] : ends) {
      visit(*end);
    }
  };
  visit_all(sends_);
  visit_all(recvs_);
  visit_all(on_device_);
}

void ConnectionSet::close() {
  sends_.clear();
  recvs_.clear();
  on_device_.clear();
  shared_.channels.clear();
  context_.rendezvous->withdraw(context_.group, context_.rank);
  ++context_.life;
}

size_t ConnectionSet::held_bytes() const noexcept {
  size_t sum = 0;
  for_each([&sum](const ConnectionEnd& end) { sum += end.held_bytes(); });
  return sum;
}

void ConnectionSet::settle(Deadline end) noexcept {
  std::vector<ConnectionEnd*> pumps;
  for_each([&pumps](ConnectionEnd& each) {
    if (each.connected() && each.has_pump()) {
      pumps.push_back(&each);
    }
  });
  const auto settled = [](const ConnectionEnd* each) { return each->settled(); };
  while (!std::all_of(pumps.begin(), pumps.end(), settled) && !end.expired()) {
    for (ConnectionEnd* const each : pumps) {
      if (each->progress_pump().has_error()) {
        return;
      }
    }
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
}

}  // namespace plexus
