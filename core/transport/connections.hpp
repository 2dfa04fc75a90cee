// SPDX-License-Identifier: Apache-2.0
// All connection ends of one rank, made when a plan first needs them. Which transport serves a peer
// follows from what the ranks told each other at init (transport_table.hpp).
//
//   ConnectionSet connections(std::move(context));
//   SendEnd& to_next = connections.find_or_make_send(1, 0);  // to rank 1, channel 0's
//   RecvEnd& from_prev = connections.find_or_make_recv(3, 0);
#pragma once

#include <map>
#include <memory>

#include "core/base/clock.hpp"
#include "core/transport/transport_table.hpp"

namespace plexus {

/// Threads: one at a time.
class ConnectionSet {
 public:
  explicit ConnectionSet(TransportContext context);
  ~ConnectionSet();
  ConnectionSet(const ConnectionSet&) = delete;
  ConnectionSet& operator=(const ConnectionSet&) = delete;

  // Finds an end, or makes one that is not connected yet. For a host rank:
  SendEnd& find_or_make_send(int peer, int index);
  RecvEnd& find_or_make_recv(int peer, int index);
  // For a CUDA rank:
  DeviceEnd& find_or_make_on_device(const ConnectionKey& key);
  [[nodiscard]] TransportKind transport_to(int peer) const;

  /// Pumps until all messages of calls that are over have arrived, or `end`. Errors end it too:
  /// what is lost is then the peer's to report.
  void settle(Deadline end) noexcept;
  /// Closes all ends, which nothing uses any more on either side. New ones may be made afterwards.
  void close();
  /// Size of the slots that this rank's ends made. Threads: the one that plans.
  [[nodiscard]] size_t held_bytes() const noexcept;

 private:
  template <class End>
  using Ends = std::map<ConnectionKey, std::unique_ptr<End>>;
  template <class Visit>
  void for_each(const Visit& visit) const;
  template <class End, class Make>
  End& find_or_make(Ends<End>& ends, const ConnectionKey& key, Make make);
  [[nodiscard]] const PeerInfo& mine() const;
  [[nodiscard]] RankPair pair_with(int peer) const;

  TransportContext context_;
  SharedByEnds shared_;
  // A rank computes on the host or on a device, so that some of these stay empty.
  Ends<SendEnd> sends_;
  Ends<RecvEnd> recvs_;
  Ends<DeviceEnd> on_device_;
};

}  // namespace plexus
