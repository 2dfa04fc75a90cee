// SPDX-License-Identifier: Apache-2.0
#include "core/stall/stall_watch.hpp"

#include <algorithm>
#include <iterator>
#include <new>
#include <utility>

#include "core/base/log.hpp"
#include "core/base/thread.hpp"
#include "core/plugin/call_watch.hpp"
#include "guest/assert.hpp"

namespace plexus {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr auto kTick = milliseconds(20);
constexpr auto kFreshPatience = seconds(3);  // time for the engine's next check for stalls
// before the calls of one thread tie two communicators
constexpr auto kThreadPatience = seconds(10);
constexpr size_t kPeersMax = 8;        // peers of one rank that are probed at once
constexpr size_t kArrivalsMax = 4096;  // more are dropped, because probes are repeated

}  // namespace

StallWatch::~StallWatch() {
  {
    const std::lock_guard lock(inbox_mutex_);
    stop_ = true;
  }
  arrived_.notify_all();
  if (thread_.joinable()) {
    thread_.join();
  }
}

// ---- members ----

void StallWatch::add(Member member) {
  const Key key{member.group, member.rank};
  Exchange* const exchange = member.exchange;
  {
    auto inquiries = make_inquiries(key, member);  // before the entry, which is never without
    const std::lock_guard lock(mutex_);
    PLEXUS_DCHECK(entries_.count(key) == 0, key.first, key.second);
    Entry& entry = entries_[key];
    entry.inquiries = std::move(inquiries);
    entry.member = std::move(member);
  }
  exchange->on_probe([this, key](int peer, bool left, std::string payload) {
    take(
        {.to = key, .from = peer, .left = left, .payload = std::move(payload), .at = Clock::now()});
  });
}

void StallWatch::remove(uint64_t group, int rank) {
  std::unique_lock lock(mutex_);
  const auto at = entries_.find({group, rank});
  if (at == entries_.end()) {
    return;
  }
  at->second.stall.reset();
  unpinned_.wait(lock, [&] { return at->second.pins == 0; });
  entries_.erase(at);
}

std::string StallWatch::leave_record(uint64_t group, int rank, Departure how) const {
  const std::lock_guard lock(mutex_);
  const auto at = entries_.find({group, rank});
  if (at == entries_.end()) {
    return {};
  }
  const CallLog& calls = *at->second.member.calls;
  LeaveRecord record{.how = how,
                     .collectives = calls.collectives(),
                     .splits = at->second.splits,
                     .last = {},
                     .messages = {}};
  for (const CallRecord& call : calls.list_recent()) {
    if (!is_point_to_point(static_cast<Collective>(call.collective)) &&
        call.sequence + LeaveRecord::kLastMax >= record.collectives) {
      record.last.push_back(call);
    }
  }
  for (int peer = 0; peer < at->second.member.nranks; ++peer) {
    for (const bool of_vector : {false, true}) {
      const LeaveRecord::Messages messages{
          .peer = static_cast<uint64_t>(peer),
          .sends = calls.messages({.peer = peer, .sends = true, .of_vector = of_vector}),
          .recvs = calls.messages({.peer = peer, .sends = false, .of_vector = of_vector}),
          .of_vector = of_vector ? 1U : 0U};
      if (messages.sends + messages.recvs > 0) {
        record.messages.push_back(messages);
      }
    }
  }
  return encode(record);
}

void StallWatch::on_stalled(uint64_t group, int rank, Standstill standstill) {
  {
    const std::lock_guard lock(mutex_);
    const auto at = entries_.find({group, rank});
    if (at == entries_.end()) {
      return;
    }
    auto& stall = at->second.stall;
    const auto now = Clock::now();
    if (!stall.has_value()) {
      stall = Stall{};  // clang 14 does not find a constructor for emplace()
      stall->epoch = ++epochs_;
      stall->thread = pthread_self();
      stall->since = now;
    }
    stall->standstill = std::move(standstill);
    stall->checked = now;
  }
  start_thread();
}

void StallWatch::on_moved(uint64_t group, int rank) {
  const std::lock_guard lock(mutex_);
  const auto at = entries_.find({group, rank});
  if (at != entries_.end()) {
    at->second.stall.reset();
  }
}

void StallWatch::begin_split(const Key& key) {
  {
    const std::lock_guard lock(mutex_);
    const auto at = entries_.find(key);
    if (at == entries_.end()) {
      return;
    }
    ++at->second.splits;
    at->second.stall = Stall{};
    Stall& stall = *at->second.stall;
    stall.epoch = ++epochs_;
    stall.is_split = true;
    stall.thread = pthread_self();
    stall.since = Clock::now();
  }
  start_thread();
}

void StallWatch::end_split(const Key& key) { on_moved(key.first, key.second); }

// ---- the thread ----

void StallWatch::take(Arrival arrival) {
  {
    const std::lock_guard lock(inbox_mutex_);
    if (inbox_.size() < kArrivalsMax) {
      inbox_.push_back(std::move(arrival));
    }
  }
  start_thread();
}

void StallWatch::start_thread() {
  const std::lock_guard lock(inbox_mutex_);
  awake_ = true;
  if (!thread_.joinable()) {
    auto thread = plexus::start_thread("the detection of stalled calls", [this] { serve(); });
    if (thread.has_error()) {
      return;  // without the thread nothing is found; the next wait tries to start it again
    }
    thread_ = std::move(thread).value();
  }
  arrived_.notify_all();
}

void StallWatch::serve() {
  for (;;) {
    {
      std::unique_lock lock(inbox_mutex_);
      arrived_.wait(lock, [this] { return stop_ || awake_ || !inbox_.empty(); });
      if (stop_) {
        return;
      }
      awake_ = false;
    }
    try {
      serve_round();
    } catch (const std::bad_alloc&) {  // What was lost is sent again; the waits lack no memory.
      const std::lock_guard lock(inbox_mutex_);
      awake_ = true;
    }
    std::unique_lock lock(inbox_mutex_);
    arrived_.wait_for(lock, kTick, [this] { return stop_ || !inbox_.empty(); });
  }
}

void StallWatch::serve_round() {
  {
    const std::lock_guard lock(mutex_);
    take_inbox();
    look(Clock::now());
    const bool any =
        !waiting_.empty() || std::any_of(entries_.begin(), entries_.end(), [](const auto& entry) {
          return entry.second.stall.has_value() || entry.second.inquiries->any();
        });
    if (any) {
      const std::lock_guard inbox_lock(inbox_mutex_);
      awake_ = true;
    }
  }
  send_all();
}

/// Requires mutex_. Loses nothing when there is no memory.
void StallWatch::take_inbox() {
  const std::lock_guard lock(inbox_mutex_);
  for (; !inbox_.empty(); inbox_.pop_front()) {
    waiting_.push_back(std::move(inbox_.front()));
  }
}

void StallWatch::look(TimePoint now) {
  std::erase_if(waiting_, [&](const Arrival& arrival) { return is_handled(arrival, now); });
  for (auto& [key, entry] : entries_) {
    if (entry.stall.has_value() && now - entry.stall->since > kProbeEvery &&
        now - entry.probed > kProbeEvery) {
      entry.probed = now;
      initiate(key, entry);
    }
    look_into(entry, now);
  }
}

/// Runs without the lock, because sending and failing a communicator may block.
void StallWatch::send_all() {
  std::vector<Outgoing> outgoing;
  std::vector<Failure> failures;
  std::vector<Finding> findings;
  std::vector<Sentence> sentences;
  {
    const std::lock_guard lock(mutex_);
    outgoing.swap(outgoing_);
    failures.swap(failures_);
    findings.swap(findings_);
    sentences.swap(sentences_);
  }
  for (Outgoing& message : outgoing) {
    if (const Pin pinned(*this, message.from); pinned.entry != nullptr) {
      pinned.entry->member.exchange->probe(message.peer, std::move(message.payload));
    }
  }
  for (const Failure& failure : failures) {
    if (const Pin pinned(*this, failure.member); pinned.entry != nullptr) {
      pinned.entry->member.fail(failure.error);
    }
  }
  tell_findings(findings);
  for (const Sentence& sentence : sentences) {
    if (sentence.is_notice) {
      PLEXUS_NOTIFY("{}", sentence.text);
    } else {
      PLEXUS_WARN("{}", sentence.text);
    }
  }
}

StallWatch::Entry* StallWatch::pin(const Key& key) {
  const std::lock_guard lock(mutex_);
  const auto at = entries_.find(key);
  if (at == entries_.end()) {
    return nullptr;
  }
  ++at->second.pins;
  return &at->second;
}

void StallWatch::unpin(const Key& key) {
  const std::lock_guard lock(mutex_);
  int& pins = entries_.at(key).pins;
  PLEXUS_DCHECK(pins > 0, key.first, key.second, pins);
  --pins;
  unpinned_.notify_all();
}

// ---- probes ----

/// The peers that a member waits for.
std::vector<StallEdge> StallWatch::edges_of(const Entry& entry) {
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

StallHop StallWatch::hop_of(const Key& key, const Entry& entry, const StallEdge& edge) {
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

void StallWatch::send(const Key& from, int peer, const StallProbe& probe) {
  PLEXUS_DCHECK(!probe.hops.empty() && probe.hops.size() <= kStallHopsMax, probe.hops.size());
  PLEXUS_DCHECK(probe.index < probe.hops.size(), probe.index, probe.hops.size());
  outgoing_.push_back({.from = from, .peer = peer, .payload = encode(probe)});
}

void StallWatch::initiate(const Key& key, Entry& entry) {
  for (const StallEdge& edge : edges_of(entry)) {
    send(key, edge.peer, {.proves = false, .index = 0, .hops = {hop_of(key, entry, edge)}});
  }
}

bool StallWatch::is_fresh(const Stall& stall, TimePoint arrived) const {
  return stall.is_split || stall.checked > arrived;
}

/// Returns false if the arrival must be kept until the engine has checked the stall again.
bool StallWatch::is_handled(const Arrival& arrival, TimePoint now) {
  const auto at = entries_.find(arrival.to);
  if (at == entries_.end() || now - arrival.at > kFreshPatience) {
    return true;
  }
  if (handle_inquiry(arrival, at->second, now)) {
    return true;
  }
  return arrival.left ? handle_left(arrival, at->second) : handle_probe(arrival, at->second);
}

bool StallWatch::handle_left(const Arrival& arrival, Entry& entry) {
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
      failures_.push_back({arrival.to, describe_different(rank, edge.call, arrival.from, *other)});
      return true;
    }
    const bool certain = edge.is_certain || depends_on(edge.call, rank, arrival.from);
    if (edge.peer == arrival.from && !edge.is_split && certain &&
        count_answers(*record, edge.call, rank) <= edge.call.sequence) {
      failures_.push_back({arrival.to, describe_left(rank, edge.call, arrival.from, record->how)});
      return true;
    }
  }
  return true;
}

bool StallWatch::handle_probe(const Arrival& arrival, Entry& entry) {
  auto probe = decode_stall_probe(arrival.payload);
  if (!probe.has_value()) {
    return true;
  }
  CallWatcher::of_process().look_at_data_paths();
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
    note_lost(entry, last, arrival.at);
    if (last.is_split == 0) {
      const auto mine =
          is_point_to_point(collective) ? calls.find(counterpart, number) : calls.find(number);
      if (mine.has_value() && mine->hash != last.call.hash) {
        failures_.push_back(
            {arrival.to, describe_different(entry.member.rank, *mine, last.rank, last.call)});
      }
    }
    return true;
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
bool StallWatch::handle_search(const Arrival& arrival, Entry& entry, StallProbe probe) {
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
void StallWatch::learn(Entry& entry, const StallProbe& probe) {
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
void StallWatch::pass_on(const Key& key, Entry& entry, const StallProbe& probe) {
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

StallWatch::Entry* StallWatch::find_stalled_by(pthread_t thread, Key& key) {
  for (auto& [other, entry] : entries_) {
    if (entry.stall.has_value() && entry.stall->thread == thread) {
      key = other;
      return &entry;
    }
  }
  return nullptr;
}

/// The member is in no call; its thread may wait in another communicator instead.
bool StallWatch::pass_thread(const Arrival& arrival, const Entry& entry, StallProbe probe) {
  Key key;
  const auto thread = entry.member.thread->find();
  Entry* const blocked = thread.has_value() ? find_stalled_by(*thread, key) : nullptr;
  if (blocked == nullptr || Clock::now() - blocked->stall->since < kThreadPatience ||
      probe.hops.size() == kStallHopsMax) {
    return true;
  }
  if (!is_fresh(*blocked->stall, arrival.at)) {
    return false;
  }
  StallHop hop = hop_of(arrival.to, entry, {});
  hop.epoch = 0;
  probe.hops.push_back(hop);
  const StallHop& first = probe.hops.front();
  if (first.group == key.first && first.rank == key.second) {
    if (first.epoch == blocked->stall->epoch) {
      start_proof(std::move(probe));
    }
    return true;
  }
  pass_on(key, *blocked, probe);
  return true;
}

/// A circle was found, whose first hop is in this process: starts the second round.
void StallWatch::start_proof(StallProbe probe) {
  const StallHop& first = probe.hops.front();
  const Key key{first.group, first.rank};
  const int peer = first.peer;
  probe.proves = true;
  probe.index = 0;
  send(key, peer, probe);
}

/// Continues the second round. The member is the hop after `index` (after the last: the first one)
/// and has not made the call.
bool StallWatch::handle_proof(const Arrival& arrival, StallProbe probe) {
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
void StallWatch::conclude(const StallProbe& probe) {
  std::set<uint64_t> done;
  for (const StallHop& hop : probe.hops) {
    const auto at = entries_.find({hop.group, hop.rank});
    if (at != entries_.end() && done.insert(hop.group).second) {
      failures_.push_back({at->first, describe_circle(probe.hops)});
    }
  }
}

}  // namespace plexus
