// SPDX-License-Identifier: Apache-2.0
// Gathers of an agent's groups: contributions go up the group's tree, the result comes down, and
// the root can ask who is missing. A part of Agent, which routes messages here.
//
// Threads: one at a time.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "core/control/agent_state.hpp"
#include "core/control/leaving.hpp"

namespace plexus {

class Gathers {
 public:
  Gathers(AgentState& state, Leaving& leaving, FailGroup fail)
      : state_(state), leaving_(leaving), fail_(std::move(fail)) {}

  // -- from ranks --
  Result<void> take_contribution(uint32_t rank, const Message& message);
  /// Rank `asker` waits for gather `overdue.tag`: asks who is missing. With an error of kInProgress
  /// all ranks are told and go on waiting, else the group fails.
  void inquire(uint32_t asker, AgentGroup& group, const Message& overdue);
  // -- from agents --
  Result<void> take_contributions(AgentGroup& group, uint32_t process, const Message& message);
  Result<void> take_gathered(AgentGroup& group, uint32_t process, const Message& message);
  void take_missing_query(uint32_t process, const Message& message);
  Result<void> take_missing(AgentGroup& group, const Message& message);
  /// To one rank of each process, which logs it: the asker in its process.
  void tell_late(const AgentGroup& group, const Message& late);

  /// Ends the inquiry of the root, whose time is over.
  void conclude(uint64_t id, AgentGroup& group);
  void fail_for_disagreement(uint64_t id, uint32_t one, uint32_t other);

 private:
  void progress(uint64_t id, AgentGroup& group, uint64_t number);
  void finish(uint64_t id, AgentGroup& group, uint64_t number);
  void pass_down(uint64_t id, AgentGroup& group, const Message& gathered);
  void ask_below(uint64_t id, AgentGroup& group, uint64_t number, uint32_t parent);
  [[nodiscard]] std::vector<MissingRank> explain_missing(const std::vector<uint32_t>& ranks) const;

  AgentState& state_;
  Leaving& leaving_;
  FailGroup fail_;
};

}  // namespace plexus
