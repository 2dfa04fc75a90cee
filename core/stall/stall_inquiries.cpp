// SPDX-License-Identifier: Apache-2.0
// StallWatch: inquiries into calls that take long, and what this process's ranks answer.
#include <algorithm>
#include <fcntl.h>
#include <mutex>
#include <random>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/base/log.hpp"
#include "core/base/text.hpp"
#include "core/engine/engine.hpp"
#include "core/plugin/call_watch.hpp"
#include "core/stall/stall_watch.hpp"
#include "guest/file.hpp"

namespace plexus {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr auto kFresh = seconds(3);  // the engine confirms a stall more often
constexpr auto kInPluginAfter = seconds(1);
constexpr uint32_t kDoublingsMax = 10;
constexpr size_t kCauseBytesMax = 128;  // from other ranks, as are the causes of one stall
constexpr size_t kCausesMax = 16;

uint64_t random_id() {
  std::random_device device;
  return uint64_t{device()} << 32 | device();
}

uint32_t seconds_since(Clock::time_point then, Clock::time_point now) {
  return static_cast<uint32_t>(
      std::max(std::chrono::duration_cast<seconds>(now - then), seconds(0)).count());
}

void append_line(const std::string& path, const std::string& line) {
  if (const auto refusal = write_text_file(path, line + "\n", O_APPEND); !refusal.empty()) {
    PLEXUS_WARN("PLEXUS_STALL_FILE={} cannot be written: {}", path, refusal);
  }
}

}  // namespace

std::unique_ptr<Inquiries> StallWatch::make_inquiries(const Key& key, const Member& member) {
  return std::make_unique<Inquiries>(
      key.second, member.nranks,
      Inquiries::Surroundings{
          .send =
              [this, key](int rank, const InquiryMessage& message) {
                outgoing_.push_back({.from = key, .peer = rank, .payload = encode(message)});
              },
          .look = [this, key] { return status_of(key, entries_.at(key), Clock::now()); },
          .conclude = [this, key](
                          uint64_t inquiry,
                          const StatusSummary& summary) { note_finding(key, inquiry, summary); },
          .hear = [this, key](std::string_view verdict) { note_verdict(key, verdict, false); }});
}

/// False: the arrival is of no inquiry, or others have to look at it as well.
bool StallWatch::handle_inquiry(const Arrival& arrival, Entry& entry, TimePoint now) {
  if (arrival.left) {
    entry.inquiries->skip(arrival.from, now);
    return false;
  }
  const auto message = decode_inquiry(arrival.payload, entry.member.nranks);
  if (!message.has_value()) {
    return false;
  }
  entry.inquiries->take(arrival.from, *message, now);
  return true;
}

/// Lower ranks inquire earlier and so spare the others: the later, the lower in the tree of 16.
/// After the first probes, from which ranks know that a call of theirs is awaited.
milliseconds StallWatch::delay_of(int rank) {
  milliseconds delay = kProbeEvery;
  for (int above = rank; above > 0; above = (above - 1) / 16) {
    delay += seconds(1);
  }
  return delay + milliseconds(50) * (rank % 16);
}

/// Begins an inquiry when the member has waited for long enough: after the patience, then after
/// twice the time each.
void StallWatch::look_into(Entry& entry, TimePoint now) {
  entry.inquiries->tick(now);
  const Member& member = entry.member;
  if (!entry.stall.has_value() || member.patience == seconds(0)) {
    return;
  }
  Stall& stall = *entry.stall;
  const auto patience = member.patience * (1U << std::min(stall.inquiries, kDoublingsMax));
  if (now - stall.since < patience + delay_of(member.rank) || now - entry.heard < member.patience) {
    return;
  }
  ++stall.inquiries;
  entry.inquiries->start(random_id(), now);
}

void StallWatch::note_finding(const Key& key, uint64_t inquiry, const StatusSummary& summary) {
  const Entry& entry = entries_.at(key);
  const bool is_asked = asked_.count(inquiry) != 0;
  if (entry.stall.has_value() || is_asked) {
    findings_.push_back({.member = key,
                         .inquiry = inquiry,
                         .status = status_of(key, entry, Clock::now()),
                         .summary = summary,
                         .is_asked = is_asked});
  }
}

/// `verdict`: the cause, a line feed and the sentence. One line per process, however many of its
/// ranks hear it; the process of the rank that found a cause says it for the job, once for a stall.
void StallWatch::note_verdict(const Key& key, std::string_view verdict, bool is_own) {
  const size_t end = std::min(verdict.find('\n'), kCauseBytesMax);
  const std::string cause(verdict.substr(0, end));
  const std::string_view sentence = verdict.substr(std::min(end + 1, verdict.size()));
  Entry& entry = entries_.at(key);
  entry.heard = Clock::now();
  const bool is_new = entry.stall.has_value() && entry.stall->told.size() < kCausesMax &&
                      entry.stall->told.insert(cause).second;
  const bool is_known = std::any_of(entries_.begin(), entries_.end(), [&](const auto& other) {
    return other.first.first == key.first && other.second.verdict == sentence;
  });
  entry.verdict = std::string(sentence);
  if (!is_known) {
    sentences_.push_back({.text = printable(sentence), .is_notice = is_own && is_new});
  }
}

/// Runs without the lock, because names come from the control plane.
void StallWatch::tell_findings(const std::vector<Finding>& findings) {
  for (const Finding& finding : findings) {
    const Pin pinned(*this, finding.member);
    if (pinned.entry == nullptr) {
      continue;
    }
    const Member& member = pinned.entry->member;
    const StallAsker asker{
        .group = member.group,
        .nranks = member.nranks,
        .status = finding.status,
        .process_of = [&](int rank) { return member.exchange->process_of(rank); }};
    if (finding.is_asked) {
      std::string made = describe(asker, finding.summary);
      const std::lock_guard lock(mutex_);
      if (const auto asked = asked_.find(finding.inquiry); asked != asked_.end()) {
        asked->second = std::move(made);
      }
      answered_.notify_all();
      continue;
    }
    const StallVerdict verdict = judge(asker, finding.summary);
    if (!member.file.empty()) {
      append_line(member.file, verdict.json);
    }
    const std::string told = fmt::format("{} {}\n{}", name(verdict.cause),
                                         fmt::join(verdict.ranks, " "), verdict.sentence);
    const std::lock_guard lock(mutex_);
    pinned.entry->inquiries->spread(finding.inquiry, told);
    note_verdict(finding.member, told, true);
  }
}

std::string StallWatch::report() {
  const std::lock_guard lock(mutex_);
  const auto now = Clock::now();
  std::string all = "[";
  for (const auto& [key, entry] : entries_) {
    StallReport made{.group = key.first,
                     .nranks = entry.member.nranks,
                     .status = status_of(key, entry, now),
                     .calls = entry.member.calls->calls(),
                     .recent = entry.member.calls->list_recent(),
                     .waits = {},
                     .verdict = entry.verdict};
    if (entry.stall.has_value()) {
      made.waits = entry.stall->standstill.waits;
    }
    all += (all.size() > 1 ? "," : "") + describe(made);
  }
  return all + "]";
}

std::string StallWatch::inquire() {
  std::vector<uint64_t> asked;
  std::unique_lock lock(mutex_);
  std::set<uint64_t> groups;
  for (auto& [key, entry] : entries_) {
    if (groups.insert(key.first).second) {
      asked.push_back(random_id());
      asked_[asked.back()];
      entry.inquiries->start(asked.back(), Clock::now());
    }
  }
  lock.unlock();
  start_thread();
  lock.lock();
  answered_.wait_for(lock, Inquiries::kTime + kFresh, [&] {
    return std::all_of(asked.begin(), asked.end(),
                       [&](uint64_t inquiry) { return !asked_[inquiry].empty(); });
  });
  std::string all = "[";
  for (const uint64_t inquiry : asked) {
    const std::string made = asked_[inquiry];
    asked_.erase(inquiry);
    all += made.empty() ? "" : (all.size() > 1 ? "," : "") + made;
  }
  return all + "]";
}

/// `waiting` waits for a message of a call that this rank has made. It is lost, or stuck in the
/// network, if this rank has sent it: when it is done with the call, or has counted more messages
/// than have come.
void StallWatch::note_lost(Entry& entry, const StallHop& waiting, TimePoint now) {
  if (waiting.connection == 0) {
    return;
  }
  bool has_sent = !(entry.member.is_busy && entry.member.is_busy());
  if (entry.stall.has_value()) {
    const int index = waiting.connection - 1;
    has_sent = std::any_of(
        entry.stall->standstill.sent.begin(), entry.stall->standstill.sent.end(),
        [&](const Sent& sent) {
          return sent.peer == waiting.rank && sent.index == index &&
                 static_cast<int32_t>(static_cast<uint32_t>(sent.messages) - waiting.received) > 0;
        });
  }
  if (!has_sent) {
    return;
  }
  if (entry.lost.peer != waiting.rank || now - entry.lost.seen > kFresh) {
    entry.lost = {.peer = waiting.rank, .since = now, .seen = now};
  }
  entry.lost.seen = now;
}

/// Requires mutex_.
RankStatus StallWatch::status_of(const Key& key, const Entry& entry, TimePoint now) {
  const Member& member = entry.member;
  RankStatus status{.rank = member.rank, .collectives = member.calls->collectives()};
  if (const auto recent = member.calls->list_recent(1); !recent.empty()) {
    status.has_call = true;
    status.call = recent.back();
  }
  if (entry.lost.peer >= 0 && now - entry.lost.seen < kFresh &&
      entry.lost.seen - entry.lost.since >= kProbeEvery / 2) {
    status.lost_to = entry.lost.peer;
  }
  const bool is_busy = member.is_busy && member.is_busy();
  const bool is_confirmed =
      entry.stall.has_value() && (entry.stall->is_split || now - entry.stall->checked < kFresh);
  if (is_confirmed && (entry.stall->is_split || !entry.stall->standstill.waits.empty())) {
    const Stall& stall = *entry.stall;
    status.seconds = seconds_since(stall.since, now);
    if (stall.is_split) {
      status.activity = RankActivity::kSplitting;
      return status;
    }
    const Wait& wait = stall.standstill.waits.front();
    status.activity = RankActivity::kWaiting;
    status.has_call = true;
    status.call = wait.call;
    status.peer = wait.peer < member.nranks ? wait.peer : -1;
    status.where = wait.where;
    status.held_up = stall.standstill.held_up;
    return status;
  }
  const auto thread = member.thread->find();
  const auto inside = CallWatcher::of_process().find_longest(thread);
  if (inside.has_value() && inside->time >= kInPluginAfter) {
    status.activity = RankActivity::kInPlugin;
    status.seconds =
        static_cast<uint32_t>(std::chrono::duration_cast<seconds>(inside->time).count());
    status.where = fmt::format("{} of plugin {}", inside->entry, inside->plugin);
    return status;
  }
  status.is_awaited = now - entry.awaited < kFresh;
  if (is_busy) {
    status.activity = RankActivity::kRunning;
    return status;
  }
  status.activity = RankActivity::kOutside;
  Key other;
  const Entry* const blocked = thread.has_value() ? find_stalled_by(*thread, other) : nullptr;
  if (blocked != nullptr && other != key) {
    status.activity = RankActivity::kElsewhere;
    status.where = fmt::format("{} of comm {:#x}",
                               blocked->stall->is_split || blocked->stall->standstill.waits.empty()
                                   ? std::string("ncclCommSplit")
                                   : describe_call(blocked->stall->standstill.waits.front().call),
                               other.first);
  }
  return status;
}

}  // namespace plexus
