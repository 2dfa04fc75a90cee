// SPDX-License-Identifier: Apache-2.0
// StallWatch: inquiries into calls that take long, and what this process's ranks answer.
#include <algorithm>
#include <fcntl.h>
#include <mutex>
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

constexpr uint32_t kDoublingsMax = 10;
constexpr size_t kCauseBytesMax = 128;  // from other ranks, as are the causes of one stall
constexpr size_t kCausesMax = 16;

/// Lower ranks inquire earlier and so spare the others: the later, the lower in the tree of 16.
/// After the first two probes, from which ranks know that a call or a message of theirs is awaited.
milliseconds delay_of(int rank) {
  milliseconds delay = 2 * kProbeEvery;
  for (int above = rank; above > 0; above = (above - 1) / 16) {
    delay += seconds(1);
  }
  return delay + milliseconds(50) * (rank % 16);
}

/// "host:pid" by rank.
std::vector<std::string> list_members(const StallMember& member) {
  std::vector<std::string> members;
  for (int rank = 0; rank < member.nranks; ++rank) {
    members.push_back(member.exchange->process_of(rank));
  }
  return members;
}

void append_line(const std::string& path, const std::string& line) {
  if (path.empty()) {
    return;
  }
  if (const auto refusal = write_text_file(path, line + "\n", O_APPEND); !refusal.empty()) {
    PLEXUS_WARN("PLEXUS_STALL_FILE={} cannot be written: {}", path, refusal);
  }
}

/// Begins an inquiry when it is asked first; nullopt: it has no answers yet.
std::optional<std::string> ask_for_culprit(StallEntries& entries,
                                           const StallKey& key,
                                           CircleSearch& search) {
  const auto at = entries.find(key);
  if (at == entries.end() || !at->second.stall.has_value()) {
    return "";
  }
  StallEntry& entry = at->second;
  if (entry.stall->culprit_inquiry == 0) {
    entry.stall->culprit_inquiry = random_id() | 1;
    search.initiate(key, entry);  // those that it waits for know of it when they are asked
    entry.inquiries->start(entry.stall->culprit_inquiry, Clock::now(), Inquiries::kShortTime);
  }
  return entry.stall->culprit;
}

bool is_of_culprit(const StallEntry& entry, uint64_t inquiry) {
  return entry.stall.has_value() && entry.stall->culprit_inquiry == inquiry;
}

void note_culprit(StallEntry& entry, uint64_t inquiry, const StallVerdict& verdict) {
  if (is_of_culprit(entry, inquiry)) {
    entry.stall->culprit = verdict.culprit;
  }
}

}  // namespace

std::unique_ptr<Inquiries> StallWatch::make_inquiries(const Key& key, const StallMember& member) {
  return std::make_unique<Inquiries>(
      key.second, member.nranks,
      Inquiries::Surroundings{
          .send =
              [this, key](int rank, const InquiryMessage& message) {
                out_.messages.push_back({.from = key, .peer = rank, .payload = encode(message)});
              },
          .look = [this, key] { return find_status(entries_, key, Clock::now()); },
          .conclude = [this, key](
                          uint64_t inquiry,
                          const StatusSummary& summary) { note_finding(key, inquiry, summary); },
          .hear = [this, key](std::string_view verdict) { note_verdict(key, verdict, false); }});
}

/// False: the arrival is of no inquiry, or others have to look at it as well.
bool StallWatch::handle_inquiry(const StallArrival& arrival, Entry& entry, TimePoint now) {
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

/// Begins an inquiry when the member has waited for long enough: after the patience, then after
/// twice the time each.
void StallWatch::look_into(Entry& entry, TimePoint now) {
  entry.inquiries->tick(now);
  const StallMember& member = entry.member;
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

std::optional<std::string> StallWatch::find_culprit(uint64_t group,
                                                    int rank,
                                                    Standstill standstill) {
  on_stalled(group, rank, std::move(standstill));
  const std::lock_guard lock(mutex_);
  return ask_for_culprit(entries_, {group, rank}, search_);
}

void StallWatch::note_finding(const Key& key, uint64_t inquiry, const StatusSummary& summary) {
  const Entry& entry = entries_.at(key);
  const bool is_asked = asked_.count(inquiry) != 0;
  if (entry.stall.has_value() || is_asked) {
    findings_.push_back({.member = key,
                         .inquiry = inquiry,
                         .status = find_status(entries_, key, Clock::now()),
                         .summary = summary,
                         .is_asked = is_asked,
                         .is_of_culprit = is_of_culprit(entry, inquiry)});
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
  const bool is_new = entry.stall.has_value() && entry.stall->reported_causes.size() < kCausesMax &&
                      entry.stall->reported_causes.insert(cause).second;
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
    const StallMember& member = pinned.entry->member;
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
    if (finding.is_of_culprit) {
      const std::lock_guard lock(mutex_);
      note_culprit(*pinned.entry, finding.inquiry, verdict);
      continue;
    }
    append_line(member.file, verdict.json);
    const std::string text = fmt::format("{} {}\n{}", name(verdict.cause),
                                         fmt::join(verdict.ranks, " "), verdict.sentence);
    const std::lock_guard lock(mutex_);
    pinned.entry->inquiries->broadcast(finding.inquiry, text);
    note_verdict(finding.member, text, true);
  }
}

std::string StallWatch::report() {
  const std::lock_guard lock(mutex_);
  const auto now = Clock::now();
  std::string all = "[";
  for (const auto& [key, entry] : entries_) {
    const StallReport made{
        .group = key.first,
        .nranks = entry.member.nranks,
        .status = find_status(entries_, key, now),
        .calls = entry.member.calls->calls(),
        .recent = entry.member.calls->list_recent(),
        .waits = entry.stall.has_value() ? entry.stall->standstill.waits : std::vector<Wait>(),
        .verdict = entry.verdict,
        .members = list_members(entry.member)};
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
  answered_.wait_for(lock, Inquiries::kTime + kStallFresh, [&] {
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

}  // namespace plexus
