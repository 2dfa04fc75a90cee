// SPDX-License-Identifier: Apache-2.0
#include "core/stall/roll_call.hpp"

#include <algorithm>

#include "guest/assert.hpp"

namespace plexus {
namespace {

using std::chrono::milliseconds;

constexpr int kBranches = 16;
constexpr size_t kRollsMax = 64;
constexpr milliseconds kReturnTime{40};  // for an answer on its way back
constexpr milliseconds kAskTimeMin{20};
constexpr milliseconds kRecallTime{2'000};  // in which a question that comes again is recognised
constexpr uint32_t kAskTimeMaxMs = 3'600'000;
constexpr size_t kRollBytesMax = size_t{64} << 20;

/// The ends of a rank's edges in the tree over its group.
std::vector<int> find_neighbours(int rank, int nranks) {
  std::vector<int> found;
  if (rank > 0) {
    found.push_back((rank - 1) / kBranches);
  }
  for (int64_t below = int64_t{kBranches} * rank + 1;
       below <= int64_t{kBranches} * (rank + 1) && below < nranks; ++below) {
    found.push_back(static_cast<int>(below));
  }
  return found;
}

}  // namespace

void RollCalls::start(uint64_t id, milliseconds time, TimePoint now) {
  Round round;
  round.until = now + time;
  open(id, std::move(round), now);
}

void RollCalls::open(uint64_t id, Round round, TimePoint now) {
  round.keep_until = round.until + kRecallTime;
  add(round, out_.look());
  const auto [at, is_new] = rounds_.emplace(id, std::move(round));
  PLEXUS_DCHECK(is_new, id);
  for (const auto& [member, nranks] : out_.members()) {
    ask_next_to(id, at->second, member, member.second, now);
  }
  look_at(id, at->second, now);
}

/// Asks the neighbours of a rank, which is `by` itself or one that `by` has asked in vain.
void RollCalls::ask_next_to(uint64_t id, Round& round, const Key& by, int rank, TimePoint now) {
  const auto members = out_.members();
  const auto size = members.find(by);
  if (size == members.end()) {
    return;  // it has left meanwhile
  }
  for (const int next : find_neighbours(rank, size->second)) {
    const Key key{by.first, next};
    const bool is_parent = round.parent.has_value() && round.parent->first.first == by.first &&
                           round.parent->second == next;
    if (members.count(key) == 0 && !is_parent && round.below.count(key) == 0) {
      ask(id, round, by, next, now);
    }
  }
}

void RollCalls::ask(uint64_t id, Round& round, const Key& by, int rank, TimePoint now) {
  round.below[{by.first, rank}] = Below{.by = by, .asked = now};
  const auto left = std::chrono::duration_cast<milliseconds>(round.until - now) - kReturnTime;
  out_.send(by, rank,
            {.step = RollStep::kAsk,
             .time_ms = static_cast<uint32_t>(std::max(left, kAskTimeMin).count()),
             .id = id});
}

void RollCalls::take(const Key& to, int from, const RollMessage& message, TimePoint now) {
  const auto at = rounds_.find(message.id);
  if (message.step == RollStep::kAsk) {
    const bool is_new = at == rounds_.end() && rounds_.size() < kRollsMax;
    out_.send(to, from, {.step = is_new ? RollStep::kHeard : RollStep::kSeen, .id = message.id});
    if (is_new) {
      Round round;
      round.parent = {to, from};
      round.until = now + milliseconds(std::min(message.time_ms, kAskTimeMaxMs));
      open(message.id, std::move(round), now);
    }
    return;
  }
  if (at == rounds_.end() || at->second.is_answered) {
    return;
  }
  Round& round = at->second;
  const auto below = round.below.find({to.first, from});
  if (below == round.below.end() || below->second.is_over) {
    return;
  }
  below->second.has_heard = true;
  below->second.is_over = message.step == RollStep::kSeen || message.step == RollStep::kAnswer;
  add(round, message.pieces);
  look_at(message.id, round, now);
}

void RollCalls::skip(uint64_t group, int rank, TimePoint now) {
  for (auto& [id, round] : rounds_) {
    const auto below = round.below.find({group, rank});
    if (below != round.below.end() && !below->second.is_over && !round.is_answered) {
      below->second.is_over = true;
      ask_next_to(id, round, below->second.by, rank, now);
      look_at(id, round, now);
    }
  }
}

void RollCalls::tick(TimePoint now) {
  for (auto& [id, round] : rounds_) {
    std::vector<Key> unheard;
    for (auto& [key, below] : round.below) {
      if (!below.has_heard && !below.is_over && !below.is_passed &&
          now - below.asked >= kHearTime) {
        below.is_passed = true;
        unheard.push_back(key);
      }
    }
    for (const Key& key : unheard) {
      if (!round.is_answered) {
        ask_next_to(id, round, round.below[key].by, key.second, now);
      }
    }
    look_at(id, round, now);
  }
  std::erase_if(rounds_, [&](const auto& each) { return now >= each.second.keep_until; });
}

std::vector<RollCalls::Key> RollCalls::list_asked() const {
  std::vector<Key> asked;
  for (const auto& [id, round] : rounds_) {
    for (const auto& [key, below] : round.below) {
      if (!round.is_answered && !below.is_over && !below.has_heard) {
        asked.push_back(key);
      }
    }
  }
  return asked;
}

/// Finishes the round if there is nothing more to wait for.
void RollCalls::look_at(uint64_t id, Round& round, TimePoint now) {
  const bool is_whole = std::all_of(round.below.begin(), round.below.end(),
                                    [](const auto& below) { return below.second.is_over; });
  if (!round.is_answered && (is_whole || now >= round.until)) {
    finish(id, round);
  }
}

void RollCalls::finish(uint64_t id, Round& round) {
  round.is_answered = true;
  std::vector<std::string> pieces = std::move(round.pieces);
  if (!round.parent.has_value()) {
    const auto silent = std::count_if(round.below.begin(), round.below.end(),
                                      [](const auto& below) { return !below.second.is_over; });
    out_.conclude(id, std::move(pieces), static_cast<size_t>(silent));
    return;
  }
  RollMessage message{.step = RollStep::kPart, .id = id};
  size_t bytes = 0;
  for (std::string& piece : pieces) {
    if (bytes + piece.size() > kRollMessageBytesMax) {
      out_.send(round.parent->first, round.parent->second, message);
      message.pieces.clear();
      bytes = 0;
    }
    bytes += piece.size();
    message.pieces.push_back(std::move(piece));
  }
  message.step = RollStep::kAnswer;
  out_.send(round.parent->first, round.parent->second, message);
}

void RollCalls::add(Round& round, const std::vector<std::string>& pieces) {
  for (const std::string& piece : pieces) {
    if (round.bytes + piece.size() <= kRollBytesMax) {
      round.bytes += piece.size();
      round.pieces.push_back(piece);
    }
  }
}

}  // namespace plexus
