// SPDX-License-Identifier: Apache-2.0
#include "core/stall/stall_watch.hpp"

#include <algorithm>
#include <new>
#include <utility>

#include "core/base/log.hpp"
#include "core/base/thread.hpp"
#include "core/plugin/call_watch.hpp"
#include "guest/assert.hpp"

namespace plexus {
namespace {

constexpr auto kTick = std::chrono::milliseconds(20);
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

void StallWatch::add(StallMember member) {
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
  return at == entries_.end() ? std::string() : encode(make_leave_record(at->second, how));
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
      stall->since = standstill.since == Clock::time_point{} ? now : standstill.since;
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

void StallWatch::take(StallArrival arrival) {
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
  bool calls_roll = false;
  {
    const std::lock_guard lock(mutex_);
    take_inbox();
    look(Clock::now());
    calls_roll = rolls_.any();
    const bool any = !waiting_.empty() || calls_roll ||
                     std::any_of(entries_.begin(), entries_.end(), [](const auto& entry) {
                       return entry.second.stall.has_value() || entry.second.inquiries->any();
                     });
    if (any) {
      const std::lock_guard inbox_lock(inbox_mutex_);
      awake_ = true;
    }
  }
  if (calls_roll) {
    visit([this](const StallMember& member) { rolls_.skip_gone(member); });
  }
  send_all();
}

void StallWatch::visit(const std::function<void(const StallMember&)>& look) {
  std::map<uint64_t, Key> members;  // one of each group
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [key, entry] : entries_) {
      members.emplace(key.first, key);
    }
  }
  for (const auto& [group, key] : members) {
    if (const Pin pinned(*this, key); pinned.entry != nullptr) {
      look(pinned.entry->member);
    }
  }
}

JobRoll StallWatch::call_roll(std::chrono::milliseconds time) {
  const uint64_t id = rolls_.start(time);
  start_thread();
  JobRoll roll = rolls_.wait(id, time);
  roll.known = list_known(*this);
  return roll;
}

std::vector<KnownRank> list_known(StallWatch& watch) {
  std::vector<KnownRank> known;
  watch.visit([&](const StallMember& member) {
    for (int rank = 0; rank < member.nranks; ++rank) {
      known.push_back({.group = member.group,
                       .rank = rank,
                       .name = member.exchange->process_of(rank),
                       .place = member.exchange->place_of(rank)});
    }
  });
  return known;
}

/// Requires mutex_. Loses nothing when there is no memory.
void StallWatch::take_inbox() {
  const std::lock_guard lock(inbox_mutex_);
  for (; !inbox_.empty(); inbox_.pop_front()) {
    waiting_.push_back(std::move(inbox_.front()));
  }
}

void StallWatch::look(TimePoint now) {
  std::erase_if(waiting_, [&](const StallArrival& arrival) { return is_handled(arrival, now); });
  for (auto& [key, entry] : entries_) {
    if (entry.stall.has_value() && now - entry.stall->since > kProbeEvery &&
        now - entry.probed > kProbeEvery) {
      entry.probed = now;
      search_.initiate(key, entry);
    }
    look_into(entry, now);
  }
  rolls_.tick(now);
}

/// Returns false if the arrival must be kept until the engine has checked the stall again.
bool StallWatch::is_handled(const StallArrival& arrival, TimePoint now) {
  const auto at = entries_.find(arrival.to);
  if (at == entries_.end() || now - arrival.at > kStallFresh) {
    return true;
  }
  if (handle_inquiry(arrival, at->second, now) || rolls_.take(arrival, now)) {
    return true;
  }
  if (!arrival.left) {
    CallWatcher::of_process().look_at_data_paths();
  }
  return search_.take(arrival, at->second);
}

/// Runs without the lock, because sending and failing a communicator may block.
void StallWatch::send_all() {
  StallOutbox out;
  std::vector<Finding> findings;
  std::vector<Sentence> sentences;
  {
    const std::lock_guard lock(mutex_);
    std::swap(out, out_);
    findings.swap(findings_);
    sentences.swap(sentences_);
  }
  for (StallOutbox::Outgoing& message : out.messages) {
    if (const Pin pinned(*this, message.from); pinned.entry != nullptr) {
      pinned.entry->member.exchange->probe(message.peer, std::move(message.payload));
    }
  }
  for (const StallOutbox::Failure& failure : out.failures) {
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

}  // namespace plexus
