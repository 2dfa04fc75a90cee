// SPDX-License-Identifier: Apache-2.0
// The agent: the control endpoint of one process for one family (the ranks that joined with one
// unique id). Agents form a tree (ControlTree) that carries the table of processes and all failure
// notices; the gathers of a group go through a tree over its members' processes; control messages
// and probes go from agent to agent directly. No process is needed by others: what a process knows
// of a group is what its own ranks and those below it in that group's tree said.
//
//   gather   up with concatenation, down with the result; a group in which a member dies fails, so
//            the trees of groups are never mended
//   notice   a death or a failure; each agent passes it on once, to all its neighbours in the tree
//            over all processes. That tree is mended: when a parent dies or leaves, its children go
//            to the nearest ancestor that is there, else to the first process that is
//   leaving  is noted as a gather is; when all members have left a group, its root says so
//
// Its parts: Gathers, Leaving, Membership, Probes, over one AgentState; what is left here routes
// messages to them and joins the family.
//
// A pure state machine: no sockets, no clock, no threads. No message of another agent can break it.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/clock.hpp"
#include "core/control/agent_state.hpp"
#include "core/control/gathers.hpp"
#include "core/control/leaving.hpp"
#include "core/control/membership.hpp"
#include "core/control/message.hpp"
#include "core/control/probes.hpp"

namespace plexus {

/// Groups whose messages are kept until a rank opens them.
inline constexpr size_t kEarlyGroupsMax = 1024;

/// Threads: one at a time.
class Agent {
 public:
  using Loss = ProcessLoss;
  using MakeMap = std::function<Result<std::shared_ptr<const FamilyMap>>(std::string_view)>;

  /// `world`: id of the group of all ranks. `make_map`: decodes a table.
  Agent(uint64_t world,
        uint64_t process_id,
        AgentOutput output,
        MakeMap make_map = FamilyMap::decode)
      : state_{.world = world, .out = std::move(output)},
        process_id_(process_id),
        make_map_(std::move(make_map)) {}
  Agent(const Agent&) = delete;
  Agent& operator=(const Agent&) = delete;

  /// A rank of this process joins; to be called before the table is there.
  Result<void> join(const JoinInfo& info);
  /// Starts with a table that is known, without an introducer.
  Result<void> open(std::shared_ptr<const FamilyMap> map);
  /// A message of a rank of this process. An Error: it makes no sense.
  Result<void> take(uint32_t rank, Message message);

  void take_from_introducer(const Message& message);
  void lose_introducer(std::string_view address);

  /// A table may come before its sender is known. An Error, also of take_from(): the sender breaks
  /// the protocol.
  Result<void> take_table(const Message& message);
  Result<void> take_from(uint32_t process, Message message);
  void lose(uint32_t process, Loss how, std::string_view why = {}) {
    membership_.lose(process, how, why);
  }
  /// This process can no longer take part: all its groups fail. `rank`: of this process.
  void break_down(uint32_t rank, const Error& error);
  /// To be called about ten times a second.
  void tick(Clock::time_point now);

  /// nullptr: no table yet.
  [[nodiscard]] const FamilyMap* map() const noexcept { return state_.map.get(); }
  [[nodiscard]] uint32_t self() const noexcept { return state_.self; }
  /// All ranks of this process have left.
  [[nodiscard]] bool is_over() const noexcept { return state_.is_over; }
  /// Number of groups that state is kept for.
  [[nodiscard]] size_t groups() const noexcept { return state_.groups.size(); }
  [[nodiscard]] bool knows_death_of(uint32_t process) const {
    return state_.dead.count(process) != 0;
  }
  /// It has died or left.
  [[nodiscard]] bool is_gone(uint32_t process) const { return state_.is_gone(process); }
  [[nodiscard]] std::optional<uint32_t> parent() const noexcept { return membership_.parent(); }
  /// Ranks of a group whose processes are known to have died or left, in rank order of the group.
  [[nodiscard]] std::vector<uint32_t> gone_ranks(uint64_t group) const {
    return membership_.gone_ranks(group);
  }
  /// In the tree over all processes.
  [[nodiscard]] bool is_neighbour(uint32_t process) const {
    return membership_.is_neighbour(process);
  }

 private:
  static constexpr auto kTableTime = std::chrono::seconds(5);  // on its way from process to process
  // -- from ranks --
  Result<void> take_group(uint32_t rank, const Message& message);
  Result<void> take_post(uint32_t rank, Message message);
  void take_failure(uint32_t rank, const Message& message);
  void leave(uint32_t rank);
  // -- from agents --
  Result<void> take_of_group(uint32_t process, Message message);

  void take_early(uint64_t id);
  void look_for_table(Clock::time_point now);
  void fail_world(const Error& error);

  AgentState state_;
  FailGroup fail_ = [this](uint64_t id, uint32_t rank, const Error& error) {
    membership_.fail_everywhere(id, rank, error);
  };
  Leaving leaving_{state_, fail_};
  Membership membership_{state_, leaving_};
  Gathers gathers_{state_, leaving_, fail_};
  Probes probes_{state_};

  uint64_t process_id_;
  MakeMap make_map_;
  std::set<uint32_t> present_;  // ranks of this process that have not left the family
  bool have_all_joined_ = false;
  std::string lost_introducer_;  // its address
  std::optional<Clock::time_point> table_due_;
  // Messages of this process's ranks, until the table is there.
  std::vector<std::pair<uint32_t, Message>> waiting_;

  // Messages for groups that no rank of this process has opened yet.
  std::map<uint64_t, std::vector<std::pair<uint32_t, Message>>> early_;
  Clock::time_point next_look_{};
};

}  // namespace plexus
