// SPDX-License-Identifier: Apache-2.0
#include "core/stall/circle_search.hpp"

#include <algorithm>
#include <set>
#include <utility>

#include "guest/assert.hpp"

namespace plexus {
namespace {

// before the calls of one thread tie two communicators
constexpr auto kThreadPatience = std::chrono::seconds(10);
constexpr size_t kPeersMax = 8;  // peers of one rank that are probed at once

}  // namespace

bool CircleSearch::take(const StallArrival& arrival, StallEntry& entry) {
  return arrival.left ? handle_left(arrival, entry) : handle_probe(arrival, entry);
}

/// The peers that a member waits for.
std::vector<StallEdge> CircleSearch::edges_of(const StallEntry& entry) {
  const Stall& stall = *entry.stall;
  std::vector<StallEdge> edges;
  for (const Wait& wait : stall.standstill.waits) {
    if (wait.peer < entry.member.nranks) {  // a higher number stands for a network that reduces
      edges.push_back({.call = wait.call,
                       .peer = wait.peer,
                       .is_split = false,
                       .is_certain = wait.certain,
                       .arrival = wait.arrival});
    }
  }
  for (const int peer : stall.needs) {
    if (stall.is_split || !stall.standstill.waits.empty()) {
      edges.push_back({.call = stall.is_split ? CallRecord{} : stall.standstill.waits.front().call,
                       .peer = peer,
                       .is_split = stall.is_split,
                       .is_certain = true,
                       .arrival = {}});
    }
  }
  if (edges.size() > kPeersMax) {
    // Rotate, so that other peers are probed the next time.
    std::rotate(edges.begin(),
                edges.begin() + static_cast<std::ptrdiff_t>(
                                    static_cast<size_t>(stall.checked.time_since_epoch().count()) %
                                    edges.size()),
                edges.end());
    edges.resize(kPeersMax);
  }
  return edges;
}

StallHop CircleSearch::hop_of(const StallKey& key, const StallEntry& entry, const StallEdge& edge) {
  StallHop hop;
  hop.group = key.first;
  hop.rank = key.second;
  hop.epoch = entry.stall.has_value() ? entry.stall->epoch : 0;
  hop.collectives = entry.member.calls->collectives();
  hop.splits = entry.splits;
  hop.call = edge.call;
  hop.peer = edge.peer;
  hop.is_split = edge.is_split ? 1 : 0;
  hop.is_certain = edge.is_certain ? 1 : 0;
  if (edge.arrival.has_value()) {
    hop.connection = static_cast<uint16_t>(edge.arrival->index + 1);
    hop.received = static_cast<uint32_t>(edge.arrival->received);
  }
  return hop;
}

void CircleSearch::initiate(const StallKey& key, const StallEntry& entry) {
  for (const StallEdge& edge : edges_of(entry)) {
    send(key, edge.peer, {.proves = false, .index = 0, .hops = {hop_of(key, entry, edge)}});
  }
}

void CircleSearch::send(const StallKey& from, int peer, const StallProbe& probe) {
  PLEXUS_DCHECK(!probe.hops.empty() && probe.hops.size() <= kStallHopsMax, probe.hops.size());
  PLEXUS_DCHECK(probe.index < probe.hops.size(), probe.index, probe.hops.size());
  out_.messages.push_back({.from = from, .peer = peer, .payload = encode(probe)});
}

bool CircleSearch::is_fresh(const Stall& stall, Clock::time_point arrived) {
  return stall.is_split || stall.checked > arrived;
}

bool CircleSearch::handle_left(const StallArrival& arrival, const StallEntry& entry) {
  if (!entry.stall.has_value()) {
    return true;
  }
  if (!is_fresh(*entry.stall, arrival.at)) {
    return false;
  }
  const auto record = decode_leave_record(arrival.payload);
  if (!record.has_value()) {
    return true;
  }
  const int rank = entry.member.rank;
  for (const StallEdge& edge : edges_of(entry)) {
    const bool is_collective =
        !edge.is_split && !is_point_to_point(static_cast<Collective>(edge.call.collective));
    const auto other =
        std::find_if(record->last.begin(), record->last.end(), [&](const auto& call) {
          return is_collective && call.sequence == edge.call.sequence &&
                 call.hash != edge.call.hash;
        });
    if (edge.peer == arrival.from && other != record->last.end()) {
      out_.failures.push_back(
          {arrival.to, describe_different(rank, edge.call, arrival.from, *other)});
      return true;
    }
    const bool certain = edge.is_certain || depends_on(edge.call, rank, arrival.from);
    if (edge.peer == arrival.from && !edge.is_split && certain &&
        count_answers(*record, edge.call, rank) <= edge.call.sequence) {
      out_.failures.push_back(
          {arrival.to, describe_left(rank, edge.call, arrival.from, record->how)});
      return true;
    }
  }
  return true;
}

bool CircleSearch::handle_probe(const StallArrival& arrival, StallEntry& entry) {
  auto probe = decode_stall_probe(arrival.payload);
  if (!probe.has_value()) {
    return true;
  }
  const StallHop& last = probe->proves ? probe->hops[probe->index] : probe->hops.back();
  const bool is_from_sender =
      last.group == arrival.to.first && last.rank == arrival.from && last.epoch != 0;
  if (!is_from_sender || last.peer != entry.member.rank) {
    return true;
  }
  const CallLog& calls = *entry.member.calls;
  const auto collective = static_cast<Collective>(last.call.collective);
  const MessageKey counterpart{.peer = arrival.from,
                               .sends = collective == Collective::kRecv,
                               .of_vector = last.call.of_vector != 0};
  const uint64_t called = last.is_split != 0              ? entry.splits
                          : is_point_to_point(collective) ? calls.messages(counterpart)
                                                          : calls.collectives();
  const uint64_t number = last.is_split != 0 ? last.splits - 1 : last.call.sequence;
  if (called > number) {
    bool has_begun = true;  // else it is on a stream, behind the one that waits
    note_lost(entry, last, arrival.at);
    if (last.is_split == 0) {
      const auto mine =
          is_point_to_point(collective) ? calls.find(counterpart, number) : calls.find(number);
      if (mine.has_value() && mine->record.hash != last.call.hash) {
        out_.failures.push_back({arrival.to, describe_different(entry.member.rank, mine->record,
                                                                last.rank, last.call)});
        return true;
      }
      has_begun = !mine.has_value() || !entry.stall.has_value() ||
                  mine->place < entry.stall->standstill.calls_end;
    }
    if (has_begun) {
      return true;
    }
  }
  const bool certain = last.is_split != 0 || last.is_certain != 0 ||
                       depends_on(last.call, last.rank, entry.member.rank);
  if (!certain) {
    return true;
  }
  entry.awaited = arrival.at;
  return probe->proves ? handle_proof(arrival, std::move(*probe))
                       : handle_search(arrival, entry, std::move(*probe));
}

/// Continues a search; the member has not made the call that the probe's last hop waits for.
bool CircleSearch::handle_search(const StallArrival& arrival, StallEntry& entry, StallProbe probe) {
  if (!entry.stall.has_value()) {
    return pass_thread(arrival, entry, std::move(probe));
  }
  if (!is_fresh(*entry.stall, arrival.at)) {
    return false;
  }
  learn(entry, probe);
  const StallHop& first = probe.hops.front();
  if (first.group == arrival.to.first && first.rank == arrival.to.second) {
    if (first.epoch == entry.stall->epoch) {
      start_proof(std::move(probe));
    }
    return true;
  }
  pass_on(arrival.to, entry, probe);
  return true;
}

/// Notes peers that have not begun this rank's collective or split and so keep it from ending.
void CircleSearch::learn(StallEntry& entry, const StallProbe& probe) {
  Stall& stall = *entry.stall;
  for (const StallHop& hop : probe.hops) {
    if (hop.group != entry.member.group || hop.rank == entry.member.rank) {
      continue;
    }
    const bool lacks_split = stall.is_split && hop.splits < entry.splits;
    const bool lacks_call =
        !stall.is_split && !stall.standstill.waits.empty() &&
        hop.collectives <= stall.standstill.waits.front().call.sequence &&
        depends_on(stall.standstill.waits.front().call, entry.member.rank, hop.rank);
    if ((lacks_split || lacks_call) && stall.needs.insert(hop.rank).second) {
      entry.probed = {};  // probe again at once
    }
  }
}

/// Passes the probe on to the peers that the member waits for.
void CircleSearch::pass_on(const StallKey& key, const StallEntry& entry, const StallProbe& probe) {
  const bool came_by = std::any_of(probe.hops.begin(), probe.hops.end(), [&](const StallHop& hop) {
    return hop.group == key.first && hop.rank == key.second;
  });
  if (came_by || probe.hops.size() == kStallHopsMax) {
    return;
  }
  for (const StallEdge& edge : edges_of(entry)) {
    StallProbe longer = probe;
    longer.hops.push_back(hop_of(key, entry, edge));
    send(key, edge.peer, longer);
  }
}

/// The member is in no call; its thread may wait in another communicator instead.
bool CircleSearch::pass_thread(const StallArrival& arrival,
                               const StallEntry& entry,
                               StallProbe probe) {
  const auto thread = entry.member.thread->find();
  auto* const found = thread.has_value() ? find_stalled_by(entries_, *thread) : nullptr;
  if (found == nullptr || arrival.at - found->second.stall->since < kThreadPatience ||
      probe.hops.size() == kStallHopsMax) {
    return true;
  }
  auto& [key, blocked] = *found;
  if (!is_fresh(*blocked.stall, arrival.at)) {
    return false;
  }
  StallHop hop = hop_of(arrival.to, entry, {});
  hop.epoch = 0;
  probe.hops.push_back(hop);
  const StallHop& first = probe.hops.front();
  if (first.group == key.first && first.rank == key.second) {
    if (first.epoch == blocked.stall->epoch) {
      start_proof(std::move(probe));
    }
    return true;
  }
  pass_on(key, blocked, probe);
  return true;
}

/// A circle was found, whose first hop is in this process: starts the second round.
void CircleSearch::start_proof(StallProbe probe) {
  const StallHop& first = probe.hops.front();
  const StallKey key{first.group, first.rank};
  const int peer = first.peer;
  probe.proves = true;
  probe.index = 0;
  send(key, peer, probe);
}

/// Continues the second round. The member is the hop after `index` (after the last: the first one)
/// and has not made the call.
bool CircleSearch::handle_proof(const StallArrival& arrival, StallProbe probe) {
  const auto& hops = probe.hops;
  size_t next = (probe.index + 1U) % hops.size();
  if (hops[next].group != arrival.to.first || hops[next].rank != arrival.to.second) {
    return true;
  }
  if (hops[next].epoch == 0) {  // it is in no call; its thread is in the next hop
    const auto& member = entries_.at(arrival.to);
    if (member.stall.has_value()) {
      return true;
    }
    next = (next + 1) % hops.size();
  }
  const auto at = entries_.find({hops[next].group, hops[next].rank});
  if (at == entries_.end() || !at->second.stall.has_value() ||
      at->second.stall->epoch != hops[next].epoch) {
    return true;  // it is in another call now
  }
  if (!is_fresh(*at->second.stall, arrival.at)) {
    return false;
  }
  if (next == 0) {
    conclude(probe);
    return true;
  }
  probe.index = static_cast<uint32_t>(next);
  send(at->first, hops[next].peer, probe);
  return true;
}

/// Fails the circle's communicators that have a rank in this process, which notifies their other
/// ranks.
void CircleSearch::conclude(const StallProbe& probe) {
  std::set<uint64_t> done;
  for (const StallHop& hop : probe.hops) {
    const auto at = entries_.find({hop.group, hop.rank});
    if (at != entries_.end() && done.insert(hop.group).second) {
      out_.failures.push_back({at->first, describe_circle(probe.hops)});
    }
  }
}

}  // namespace plexus
