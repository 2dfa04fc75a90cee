// SPDX-License-Identifier: Apache-2.0
// Finds circles of ranks that wait for each other, and ranks whose calls differ or that have left,
// by edge chasing: K. M. Chandy, J. Misra, L. M. Haas, "Distributed Deadlock
// Detection", ACM TOCS 1(2), 1983 (the AND model).
//
// A rank whose call has not moved for a second sends a probe to each peer that it waits for. A
// probe lists the ranks that it has passed, each with the call that it waits in. The peer compares:
//   - it has made a call of that number: the two must agree, or the ranks' calls differ;
//   - it has not begun it, and waits in another call itself (of those on a stream, one that was put
//     there before): it passes the probe on to those it waits for;
//   - it has not, and is not waiting: it is late, and the probe ends here.
// A probe that returns to its sender has passed a circle of ranks, each of which waits for a call
// that the next one cannot make. A second probe along the same circle proves that no rank has moved
// meanwhile, so the circle existed at one moment.
//
// Calls are compared by number: collectives by their number in the communicator, sends and receives
// by their number per peer and direction (CallLog), splits by theirs. A rank has one call, or one
// group, in progress per communicator and begins the next one afterwards, so a wait belongs to the
// rank. Calls of different communicators are tied by the thread that makes them. If several threads
// use a communicator, that tie is uncertain and nothing is concluded; otherwise it counts after
// kThreadPatience.
//
//   CircleSearch search(entries, outbox);
//   search.initiate(key, entries.at(key));  // when the rank has stalled, and every second then
//   search.take(arrival, entries.at(arrival.to));
//
// Pure: no locks, no threads, no clock. Threads: one at a time.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/stall/stall_member.hpp"

namespace plexus {

/// A message from the control plane.
struct StallArrival {
  StallKey to;
  int from = 0;
  bool left = false;  // `payload` is the sender's leave record
  std::string payload;
  Clock::time_point at;
};

/// What is to be done without a lock, because it may block.
struct StallOutbox {
  struct Outgoing {
    StallKey from;
    int peer;
    std::string payload;
  };
  /// A call that can never end.
  struct Failure {
    StallKey member;
    Error error;
  };
  std::vector<Outgoing> messages;
  std::vector<Failure> failures;
};

class CircleSearch {
 public:
  /// Both are borrowed, and outlive it.
  CircleSearch(StallEntries& entries, StallOutbox& out) : entries_(entries), out_(out) {}

  /// Probes the peers that the member, which has stalled, waits for.
  void initiate(const StallKey& key, const StallEntry& entry);
  /// False: the arrival must be kept until the engine has checked the member's stall again.
  [[nodiscard]] bool take(const StallArrival& arrival, StallEntry& entry);

 private:
  [[nodiscard]] static bool is_fresh(const Stall& stall, Clock::time_point arrived);
  [[nodiscard]] bool handle_left(const StallArrival& arrival, const StallEntry& entry);
  [[nodiscard]] bool handle_probe(const StallArrival& arrival, StallEntry& entry);
  [[nodiscard]] bool handle_search(const StallArrival& arrival,
                                   StallEntry& entry,
                                   StallProbe probe);
  [[nodiscard]] bool handle_proof(const StallArrival& arrival, StallProbe probe);
  static void learn(StallEntry& entry, const StallProbe& probe);
  void pass_on(const StallKey& key, const StallEntry& entry, const StallProbe& probe);
  [[nodiscard]] bool pass_thread(const StallArrival& arrival,
                                 const StallEntry& entry,
                                 StallProbe probe);
  void start_proof(StallProbe probe);
  void conclude(const StallProbe& probe);
  void send(const StallKey& from, int peer, const StallProbe& probe);
  [[nodiscard]] static StallHop hop_of(const StallKey& key,
                                       const StallEntry& entry,
                                       const StallEdge& edge);
  [[nodiscard]] static std::vector<StallEdge> edges_of(const StallEntry& entry);

  StallEntries& entries_;
  StallOutbox& out_;
};

}  // namespace plexus
