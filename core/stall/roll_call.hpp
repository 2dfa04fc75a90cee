// SPDX-License-Identifier: Apache-2.0
// A roll call: one process asks all processes of the job what their ranks do, in a bounded time. In
// every communicator the ranks form a tree of 16 branches, whose edges are the ways that a question
// takes: a process that hears it for the first time passes it on by all its other edges, in all its
// communicators, and answers when those have answered (an echo). So it also reaches processes that
// share no communicator with the one that asks. Past a rank that does not confirm the question, the
// process asks those that are next to it. What is there when the time is over is the answer.
// Pure: no threads, no clock.
//
//   calls.start(id, 400ms, now);   // conclude(id, pieces) follows, from take() or tick()
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/base/clock.hpp"
#include "core/stall/roll_record.hpp"

namespace plexus {

class RollCalls {
 public:
  using TimePoint = Clock::time_point;
  using Key = std::pair<uint64_t, int>;  // group and rank
  struct Surroundings {
    std::function<void(const Key& from, int to, const RollMessage&)> send;
    /// The ranks of this process, with the sizes of their groups.
    std::function<std::map<Key, int>()> members;
    /// What this process says of itself.
    std::function<std::vector<std::string>()> look;
    /// This process's roll call has ended; `silent`: processes that should have answered.
    std::function<void(uint64_t id, std::vector<std::string> pieces, size_t silent)> conclude;
  };

  explicit RollCalls(Surroundings surroundings) : out_(std::move(surroundings)) {}

  void start(uint64_t id, std::chrono::milliseconds time, TimePoint now);
  /// A message from rank `from` of the member's group.
  void take(const Key& to, int from, const RollMessage& message, TimePoint now);
  /// The process of rank `rank` has died or left, and answers nothing.
  void skip(uint64_t group, int rank, TimePoint now);
  void tick(TimePoint now);
  /// Ranks that have not confirmed a question yet, each with its group.
  [[nodiscard]] std::vector<Key> list_asked() const;
  [[nodiscard]] bool any() const noexcept { return !rounds_.empty(); }

  /// Time for one rank to confirm a question.
  static constexpr std::chrono::milliseconds kHearTime{120};

 private:
  struct Below {
    Key by;  // the member that asked
    TimePoint asked;
    bool has_heard = false;
    bool is_over = false;    // it has answered, will not, or has another way
    bool is_passed = false;  // those next to it have been asked
  };
  struct Round {
    std::optional<std::pair<Key, int>> parent;  // member that was asked, and rank that asked
    TimePoint until;
    TimePoint keep_until;
    bool is_answered = false;
    std::map<Key, Below> below;
    std::vector<std::string> pieces;
    size_t bytes = 0;
  };

  void open(uint64_t id, Round round, TimePoint now);
  void ask(uint64_t id, Round& round, const Key& by, int rank, TimePoint now);
  void ask_next_to(uint64_t id, Round& round, const Key& by, int rank, TimePoint now);
  void look_at(uint64_t id, Round& round, TimePoint now);
  void finish(uint64_t id, Round& round);
  static void add(Round& round, const std::vector<std::string>& pieces);

  Surroundings out_;
  std::map<uint64_t, Round> rounds_;
};

}  // namespace plexus
