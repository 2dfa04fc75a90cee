// SPDX-License-Identifier: Apache-2.0
#include "core/transport/transport_table.hpp"

#include <algorithm>
#include <iterator>

#include "core/peers/reach.hpp"
#include "core/transport/memory/direct.hpp"
#include "core/transport/memory/p2p.hpp"
#include "core/transport/memory/shm.hpp"
#include "core/transport/network/collnet.hpp"
#include "core/transport/network/net.hpp"
#include "core/transport/network/xdc.hpp"

namespace plexus {
namespace {

template <PeerReach reach>
bool has(const RankPair& pair) {
  return pair.peers != nullptr && reach_of(pair.mine, *pair.peers) == reach;
}
bool is_xdc(const RankPair& pair) { return pair.peers != nullptr && pair.crosses_datacenters; }
bool is_net(const RankPair& pair) { return pair.peers != nullptr; }
bool is_collnet(const RankPair& pair) { return pair.peers == nullptr; }

// The first that connects a pair of ranks serves it.
constexpr TransportRow kTransports[] = {
    {TransportKind::kDirect, "direct", has<PeerReach::kProcess>, make_direct_send, make_direct_recv,
     make_direct_on_device},
    {TransportKind::kP2p, "p2p", has<PeerReach::kDevice>, nullptr, nullptr, make_p2p_on_device},
    {TransportKind::kShm, "shm", has<PeerReach::kSharedMemory>, make_shm_send, make_shm_recv,
     make_shm_on_device},
    {TransportKind::kXdc, "xdc", is_xdc, make_xdc_send, make_xdc_recv, make_xdc_on_device},
    {TransportKind::kNet, "net", is_net, make_net_send, make_net_recv, make_net_on_device},
    {TransportKind::kCollnet, "collnet", is_collnet, make_collnet_send, make_collnet_recv,
     make_collnet_on_device},
};

}  // namespace

TransportKind choose_transport(const RankPair& pair) {
  return std::find_if(std::begin(kTransports), std::end(kTransports),
                      [&](const TransportRow& row) { return row.connects(pair); })
      ->kind;
}

const TransportRow& row_of(TransportKind kind) {
  return *std::find_if(std::begin(kTransports), std::end(kTransports),
                       [&](const TransportRow& row) { return row.kind == kind; });
}

const char* name(TransportKind kind) { return row_of(kind).name; }

bool EndRequest::may_borrow() const {
  const bool any_cuda = mine.on_cuda() || peers->on_cuda();
  return mine.p2p_direct_disable == 0 && peers->p2p_direct_disable == 0 &&
         (!any_cuda || reach_each_other(mine, *peers));
}

}  // namespace plexus
