// SPDX-License-Identifier: Apache-2.0
// Who of the family is there, for an agent: notices of deaths and failures, each of which goes once
// over every edge of the tree over all processes, and that tree, which is mended when a process is
// gone. A part of Agent, which routes messages here.
//
// Threads: one at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string_view>
#include <vector>

#include "core/control/agent_state.hpp"
#include "core/control/leaving.hpp"

namespace plexus {

enum class ProcessLoss {
  kBroken,   // a connection ended without a leave message: the process died
  kRefused,  // nothing listens there: it died or left
};

class Membership {
 public:
  Membership(AgentState& state, Leaving& leaving) : state_(state), leaving_(leaving) {}

  /// Takes parent and children from the tree of `world`, the group of all ranks.
  void open(const AgentGroup& world);
  Result<void> take_attach(uint32_t process, const Message& message);
  Result<void> take_notices(uint32_t process, const Message& message);
  void take_leave(uint32_t process);
  /// `process` sent the table though it is no neighbour: a child of it, above this one, has died.
  void take_adoption(uint32_t process);
  void lose(uint32_t process, ProcessLoss how, std::string_view why);

  /// Passes a notice on to all neighbours but `source`, once. `informed`: a rank that knows it.
  void broadcast(FailureNotice notice, std::optional<uint32_t> source, uint32_t informed);
  /// The group fails on all its ranks but `informed`. `rank`: whose failure it is.
  void fail_everywhere(uint64_t id, uint32_t rank, const Error& error, uint32_t informed = kNobody);
  /// The group fails on the ranks of this process but `informed`.
  void fail_group(
      uint64_t id, AgentGroup& group, uint32_t informed, const Error& error, FailureCause cause);
  void tell_failure(uint64_t id, uint32_t rank, const Error& error, FailureCause cause) const;
  /// The group fails if a member of it is known to be dead.
  void fail_with_dead(uint64_t id, AgentGroup& group);
  void look_for_missing(AgentGroup& group);
  /// The group fails, because the process that it suspects has not been heard of.
  void give_up_suspect(uint64_t id, const AgentGroup& group);

  [[nodiscard]] std::vector<FailureNotice> all_notices() const;
  [[nodiscard]] std::vector<uint32_t> gone_ranks(uint64_t id) const;
  [[nodiscard]] std::optional<uint32_t> parent() const noexcept { return parent_; }
  [[nodiscard]] bool is_neighbour(uint32_t process) const {
    return parent_ == process || children_.count(process) != 0;
  }

 private:
  void apply(const FailureNotice& notice, uint32_t informed);
  void attach();
  void adopt_children_of(uint32_t process);
  void miss(uint32_t process, Clock::duration time);

  AgentState& state_;
  Leaving& leaving_;
  std::optional<uint32_t> parent_;  // in the tree over all processes
  std::set<uint32_t> children_;
};

}  // namespace plexus
