// SPDX-License-Identifier: Apache-2.0
#include "core/stall/stall_member.hpp"

#include <algorithm>
#include <random>

#include <fmt/format.h>

#include "core/engine/engine.hpp"
#include "core/plugin/call_watch.hpp"

namespace plexus {
namespace {

using std::chrono::seconds;

constexpr auto kInPluginAfter = std::chrono::milliseconds(500);

uint32_t seconds_since(Clock::time_point then, Clock::time_point now) {
  return static_cast<uint32_t>(
      std::max(std::chrono::duration_cast<seconds>(now - then), seconds(0)).count());
}

}  // namespace

uint64_t random_id() {
  std::random_device device;
  return uint64_t{device()} << 32 | device();
}

StallEntries::value_type* find_stalled_by(StallEntries& entries, pthread_t thread) {
  for (auto& each : entries) {
    if (each.second.stall.has_value() && each.second.stall->thread == thread) {
      return &each;
    }
  }
  return nullptr;
}

LeaveRecord make_leave_record(const StallEntry& entry, Departure how) {
  const CallLog& calls = *entry.member.calls;
  LeaveRecord record{.how = how,
                     .collectives = calls.collectives(),
                     .splits = entry.splits,
                     .last = {},
                     .messages = {}};
  for (const CallRecord& call : calls.list_recent()) {
    if (!is_point_to_point(static_cast<Collective>(call.collective)) &&
        call.sequence + LeaveRecord::kLastMax >= record.collectives) {
      record.last.push_back(call);
    }
  }
  for (int peer = 0; peer < entry.member.nranks; ++peer) {
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
  return record;
}

/// It is lost, or stuck in the network, if this rank has sent it: when it is done with the call, or
/// has counted more messages than have come.
void note_lost(StallEntry& entry, const StallHop& waiting, Clock::time_point now) {
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
  if (entry.lost.peer != waiting.rank || now - entry.lost.seen > kStallFresh) {
    entry.lost = {.peer = waiting.rank, .since = now, .seen = now};
  }
  entry.lost.seen = now;
}

RankStatus find_status(StallEntries& entries, const StallKey& key, Clock::time_point now) {
  const StallEntry& entry = entries.at(key);
  const StallMember& member = entry.member;
  RankStatus status{.rank = member.rank, .collectives = member.calls->collectives()};
  if (const auto recent = member.calls->list_recent(1); !recent.empty()) {
    status.has_call = true;
    status.call = recent.back();
  }
  if (entry.lost.peer >= 0 && now - entry.lost.seen < kStallFresh &&
      entry.lost.seen - entry.lost.since >= kProbeEvery / 2) {
    status.lost_to = entry.lost.peer;
  }
  const bool is_busy = member.is_busy && member.is_busy();
  const bool is_confirmed = entry.stall.has_value() &&
                            (entry.stall->is_split || now - entry.stall->checked < kStallFresh);
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
    // it was seen there some time after it had entered
    status.seconds = static_cast<uint32_t>(std::chrono::ceil<seconds>(inside->time).count());
    status.where = fmt::format("{} of plugin {}", inside->entry, inside->plugin);
    return status;
  }
  status.is_awaited = now - entry.awaited < kStallFresh;
  if (is_busy) {
    status.activity = RankActivity::kRunning;
    return status;
  }
  status.activity = RankActivity::kOutside;
  const auto* const blocked = thread.has_value() ? find_stalled_by(entries, *thread) : nullptr;
  if (blocked != nullptr && blocked->first != key) {
    const Stall& stall = *blocked->second.stall;
    status.activity = RankActivity::kElsewhere;
    status.where = fmt::format("{} of comm {:#x}",
                               stall.is_split || stall.standstill.waits.empty()
                                   ? std::string("ncclCommSplit")
                                   : describe_call(stall.standstill.waits.front().call),
                               blocked->first.first);
  }
  return status;
}

}  // namespace plexus
