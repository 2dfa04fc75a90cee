// SPDX-License-Identifier: Apache-2.0
// Roll calls of a process: those that it makes, and what it says in those of others. A part of
// StallWatch, with which it shares the lock, the members and the outbox.
#pragma once

#include <condition_variable>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "core/stall/circle_search.hpp"
#include "core/stall/roll_call.hpp"

namespace plexus {

/// A rank of a communicator that this process has a rank of.
struct KnownRank {
  uint64_t group = 0;
  int rank = 0;
  std::string name = {};  // "host:pid"; "": there is no other process
  ProcessPlace place = {};
};

struct JobRoll {
  std::vector<RollProcess> processes = {};  // that have answered; this one is the first
  std::vector<KnownRank> known = {};
  Clock::duration time{};  // that it took
  size_t timeouts = 0;     // processes that should have answered, as far as this one asked them
};

/// Threads: any.
class StallRolls {
 public:
  using TimePoint = Clock::time_point;

  /// All are borrowed, and outlive it. `mutex` guards the others and this.
  StallRolls(std::mutex& mutex, StallEntries& entries, StallOutbox& out);

  // -- with the lock --
  /// False: the arrival is of no roll call, or others have to look at it as well.
  bool take(const StallArrival& arrival, TimePoint now);
  void tick(TimePoint now) { calls_.tick(now); }
  [[nodiscard]] bool any() const { return calls_.any(); }

  // -- without --
  uint64_t start(std::chrono::milliseconds time);
  /// The answer to start()'s roll call, without `known`.
  JobRoll wait(uint64_t id, std::chrono::milliseconds time);
  /// `member`'s process has been asked for ranks that have not confirmed it: passes those by that
  /// have died or left.
  void skip_gone(const StallMember& member);

 private:
  struct Answer {
    bool is_there = false;
    std::vector<std::string> pieces = {};
    size_t silent = 0;
  };
  [[nodiscard]] std::vector<std::string> describe_process();
  [[nodiscard]] std::map<StallKey, int> list_members() const;
  void send(const StallKey& from, int to, const RollMessage& message);
  void conclude(uint64_t id, std::vector<std::string> pieces, size_t silent);

  std::mutex& mutex_;
  StallEntries& entries_;
  StallOutbox& out_;
  RollCalls calls_;
  std::map<uint64_t, Answer> asked_;  // roll calls of start()
  std::condition_variable answered_;
};

}  // namespace plexus
