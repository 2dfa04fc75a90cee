// SPDX-License-Identifier: Apache-2.0
// All-reduce in which the network sums between hosts: a switch or a server (ncclCollNet) adds the
// contributions of one rank per host and returns the sum to each. Inside a host the ranks reduce to
// the heads, which are the ranks that use the network, and get the result from them.
//
// The network is a peer: number `nranks + g` is the group of head number g of all hosts. A head
// sends its host's sum to it and receives the sum of all hosts with the usual verbs. Recording and
// the executor are therefore unchanged, and the verifier gives the network a program of its own
// (kernels/program/network_peer.hpp: receive one chunk from each member, combine, send the result
// to each), so that the proofs of exactly-once, order and slots include the network. A verb "reduce
// in the network" would need all of that again.
//
// Direct: each host has `heads` heads, and each rank sends every head its shard. Better where a
// host has several NICs and its ranks reach each other directly.
// Chunks per loop: 4 x heads. Steps: 4 (2 with one rank on each host). Chunks sent: at most
// 4 x (heads + ranks of the host - 1).
// Chain: one head; down the places of the host to it and back up, as two lanes that overlap over
// loops. Chunks per loop: 1. Steps: 2 x ranks of the host. Chunks sent: 2 per rank.
// Both send each byte of a host's sum to the network once, where a ring sends it twice, and their
// steps do not grow with the number of hosts.
#pragma once

#include "kernels/algorithms/prims.hpp"
#include "kernels/algorithms/ring_view.hpp"

namespace plexus {

/// Number of chunks of a shard in flight.
inline constexpr int kCollnetDepth = 4;

/// The ranks of the own host, which are consecutive in the ring.
struct HostView {
  RingView ring;
  int first;  // place of the host's first rank
  int count;  // ranks of the host

  /// `starts`: [nhosts] first places of the hosts, ascending from 0.
  [[nodiscard]] PLEXUS_HOST_DEVICE static HostView of(const RingView& ring,
                                                      const int* starts,
                                                      int nhosts) {
    int host = nhosts - 1;
    while (starts[host] > ring.position) {
      --host;
    }
    const int end = host + 1 < nhosts ? starts[host + 1] : ring.nranks;
    return {ring, starts[host], end - starts[host]};
  }
  [[nodiscard]] PLEXUS_HOST_DEVICE int place() const { return ring.position - first; }
  [[nodiscard]] PLEXUS_HOST_DEVICE int rank(int place_on_host) const {
    return ring.at(first + place_on_host);
  }
};

/// All other ranks of the host; in a reduction the own contribution has its place among them.
struct HostOthers {
  HostView host;
  [[nodiscard]] PLEXUS_HOST_DEVICE int size() const { return host.count - 1; }
  PLEXUS_HOST_DEVICE int operator[](int index) const {
    return host.rank(index < host.place() ? index : index + 1);
  }
  [[nodiscard]] PLEXUS_HOST_DEVICE int own_position() const { return host.place(); }
};

/// 1 <= heads <= ranks of every host; the heads are the first `heads` places of a host.
template <class Prims>
PLEXUS_HOST_DEVICE void collnet_direct_all_reduce(Prims& prims, const HostView& host, int heads) {
  const int place = host.place();
  const bool is_head = place < heads;
  const int network = host.ring.nranks + place;
  const HostOthers others{host};
  if (!prims.lane(0)) {
    return;
  }
  for (int depth = 0; depth < kCollnetDepth; ++depth) {
    for (int head = 0; head < heads; ++head) {
      if (head != place) {
        prims.send(Buffer::kInput, depth * heads + head, host.rank(head));
      }
    }
  }
  for (int depth = 0; is_head && depth < kCollnetDepth; ++depth) {
    prims.recv_reduce_send(others, Buffer::kInput, depth * heads + place, network);
  }
  for (int depth = 0; is_head && depth < kCollnetDepth; ++depth) {
    prims.recv_copy_send(network, Buffer::kOutput, depth * heads + place, others, Complete::kYes);
  }
  for (int depth = 0; depth < kCollnetDepth; ++depth) {
    for (int head = 0; head < heads; ++head) {
      if (head != place) {
        prims.recv(host.rank(head), Buffer::kOutput, depth * heads + head);
      }
    }
  }
}

template <class Prims>
PLEXUS_HOST_DEVICE void collnet_chain_all_reduce(Prims& prims, const HostView& host) {
  const int place = host.place();
  const bool is_last = place + 1 == host.count;
  // The head has the network as its neighbour on the other side.
  const int nearer = place == 0 ? host.ring.nranks : host.rank(place - 1);
  const Complete complete = place == 0 ? Complete::kYes : Complete::kNo;
  if (is_last) {
    if (prims.lane(0)) {
      prims.send(Buffer::kInput, 0, nearer);
    }
    if (prims.lane(1)) {
      prims.recv(nearer, Buffer::kOutput, 0, complete);
    }
    return;
  }
  const int further = host.rank(place + 1);
  if (prims.lane(0)) {
    prims.recv_reduce_send(further, Buffer::kInput, 0, nearer);
  }
  if (prims.lane(1)) {
    prims.recv_copy_send(nearer, Buffer::kOutput, 0, further, complete);
  }
}

}  // namespace plexus
