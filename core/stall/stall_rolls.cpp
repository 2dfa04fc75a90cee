// SPDX-License-Identifier: Apache-2.0
#include "core/stall/stall_rolls.hpp"

#include <iterator>
#include <unistd.h>
#include <utility>

#include "core/os/host.hpp"

namespace plexus {
namespace {

using std::chrono::milliseconds;

constexpr auto kSlack = milliseconds(40);  // in which the thread finds that a time is over

/// Ranks of a process may come in several pieces.
std::vector<RollProcess> decode_all(const std::vector<std::string>& pieces) {
  std::vector<RollProcess> processes;
  std::map<uint64_t, size_t> places;
  for (const std::string& piece : pieces) {
    auto process = decode_roll_process(piece);
    if (!process.has_value()) {
      continue;  // of another version, or damaged: its ranks are missing
    }
    const auto [place, is_new] = places.emplace(process->id, processes.size());
    if (is_new) {
      processes.push_back(std::move(*process));
    } else {
      auto& ranks = processes[place->second].ranks;
      std::move(process->ranks.begin(), process->ranks.end(), std::back_inserter(ranks));
    }
  }
  return processes;
}

}  // namespace

StallRolls::StallRolls(std::mutex& mutex, StallEntries& entries, StallOutbox& out)
    : mutex_(mutex),
      entries_(entries),
      out_(out),
      calls_({.send = [this](const StallKey& from,
                             int to,
                             const RollMessage& message) { send(from, to, message); },
              .members = [this] { return list_members(); },
              .look = [this] { return describe_process(); },
              .conclude = [this](uint64_t id,
                                 std::vector<std::string> pieces,
                                 size_t silent) { conclude(id, std::move(pieces), silent); }}) {}

bool StallRolls::take(const StallArrival& arrival, TimePoint now) {
  if (arrival.left) {
    calls_.skip(arrival.to.first, arrival.from, now);
    return false;
  }
  const auto message = decode_roll_message(arrival.payload);
  if (message.has_value()) {
    calls_.take(arrival.to, arrival.from, *message, now);
  }
  return message.has_value();
}

void StallRolls::send(const StallKey& from, int to, const RollMessage& message) {
  out_.messages.push_back({.from = from, .peer = to, .payload = encode(message)});
}

std::map<StallKey, int> StallRolls::list_members() const {
  std::map<StallKey, int> members;
  for (const auto& [key, entry] : entries_) {
    members.emplace(key, entry.member.nranks);
  }
  return members;
}

std::vector<std::string> StallRolls::describe_process() {
  RollProcess process{.id = process_id(), .pid = getpid()};
  const auto now = Clock::now();
  for (const auto& [key, entry] : entries_) {
    const StallMember& member = entry.member;
    process.host = member.host;
    process.address = member.address.empty() ? process.address : member.address;
    RollRank rank{.group = member.group,
                  .nranks = member.nranks,
                  .device = member.device,
                  .state = member.look ? member.look() : MemberState{},
                  .status = find_status(entries_, key, now),
                  .arrivals = member.calls->arrivals().list()};
    for (size_t kind = 0; kind < rank.counts.size(); ++kind) {
      rank.counts[kind] = member.calls->collectives(static_cast<Collective>(kind));
    }
    for (size_t kind = 0; kind < rank.bytes.size(); ++kind) {
      rank.bytes[kind] = member.calls->bytes(static_cast<Collective>(kind));
    }
    process.ranks.push_back(std::move(rank));
  }
  return encode(process);
}

void StallRolls::conclude(uint64_t id, std::vector<std::string> pieces, size_t silent) {
  if (const auto asked = asked_.find(id); asked != asked_.end()) {
    asked->second = {.is_there = true, .pieces = std::move(pieces), .silent = silent};
    answered_.notify_all();
  }
}

uint64_t StallRolls::start(milliseconds time) {
  const uint64_t id = random_id();
  const std::lock_guard lock(mutex_);
  asked_[id];
  calls_.start(id, time, Clock::now());
  return id;
}

JobRoll StallRolls::wait(uint64_t id, milliseconds time) {
  const auto began = Clock::now();
  JobRoll roll;
  std::vector<std::string> pieces;
  {
    std::unique_lock lock(mutex_);
    answered_.wait_for(lock, time + kSlack, [&] { return asked_[id].is_there; });
    Answer& answer = asked_[id];
    roll.timeouts = answer.silent;
    pieces = answer.is_there ? std::move(answer.pieces) : describe_process();
    asked_.erase(id);
  }
  roll.processes = decode_all(pieces);
  roll.time = Clock::now() - began;
  return roll;
}

void StallRolls::skip_gone(const StallMember& member) {
  std::vector<StallKey> asked;
  {
    const std::lock_guard lock(mutex_);
    asked = calls_.list_asked();
  }
  for (const auto& [group, rank] : asked) {
    if (group == member.group && member.exchange->place_of(rank).is_gone) {
      const std::lock_guard lock(mutex_);
      calls_.skip(group, rank, Clock::now());
    }
  }
}

}  // namespace plexus
