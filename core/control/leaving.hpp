// SPDX-License-Identifier: Apache-2.0
// Leaving the groups of an agent: notes of who has left go up the group's tree as a gather does;
// when all members have left, the root says so. A part of Agent, which routes messages here.
//
// Threads: one at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>

#include "core/control/agent_state.hpp"

namespace plexus {

class Leaving {
 public:
  Leaving(AgentState& state, FailGroup fail) : state_(state), fail_(std::move(fail)) {}

  /// A rank of this process leaves a group.
  Result<void> take_leave_group(uint32_t rank, Message message);
  /// Notes come from below, and from processes whose parents are not there.
  Result<void> take_notes(AgentGroup& group, const Message& message);
  /// Fails the group if a gather waits for a rank that has left in order.
  void check(uint64_t id, AgentGroup& group);
  /// Leave notes that went to a process that is gone go to another one.
  void take_back_notes(uint32_t process);
  /// This process leaves: its notes go to processes that stay.
  void hand_over();
  /// All members have left.
  void end_group(uint64_t id, AgentGroup& group);

 private:
  void note(uint64_t id, AgentGroup& group, LeaveNote note);
  void compare(uint64_t id, AgentGroup& group, uint32_t rank);
  void progress(uint64_t id, AgentGroup& group);
  [[nodiscard]] bool is_left_by_all(const AgentGroup& group) const;
  void send_notes(uint64_t id, const AgentGroup& group, uint32_t process);
  [[nodiscard]] std::optional<uint32_t> successor_of(const AgentGroup& group) const;

  AgentState& state_;
  FailGroup fail_;
};

}  // namespace plexus
