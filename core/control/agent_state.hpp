// SPDX-License-Identifier: Apache-2.0
// What an agent knows: the family, who of it is there, and the groups of this process's ranks. Its
// parts (Gathers, Leaving, Probes) and the agent itself, which routes messages to them, work on it.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "core/base/clock.hpp"
#include "core/control/agent_hooks.hpp"
#include "core/control/failure_cause.hpp"
#include "core/control/gathered.hpp"
#include "core/control/message.hpp"
#include "core/control/process_table.hpp"

namespace plexus {

inline constexpr size_t kGathersMax = 64;  // unfinished gathers per group

/// Who is in a group, and the tree over the members' processes.
struct GroupLayout {
  /// `ranks`: in rank order of the group.
  GroupLayout(const ProcessTable& table, std::vector<uint32_t> ranks);
  [[nodiscard]] bool has(uint32_t rank) const;
  std::vector<uint32_t> members;
  std::vector<uint32_t> sorted;  // the same, ascending; empty: so are `members`
  ControlTree tree;
  uint32_t fingerprint = 0;  // of `members`: agents that differ in it do not agree on the group
};

/// All processes of a family; the same for all agents.
struct FamilyMap {
  explicit FamilyMap(ProcessTable processes);
  static Result<std::shared_ptr<const FamilyMap>> decode(std::string_view table);
  ProcessTable table;
  std::shared_ptr<const GroupLayout> all;  // in whose tree a position is the number of a process
};

/// What an agent asks of its surroundings. None of these may call the agent.
struct AgentOutput {
  /// Over the connection to that process, which is made when needed, in order. If it cannot be
  /// made: Agent::lose(process, kRefused).
  std::function<void(uint32_t process, const Message&)> send;
  std::function<void(uint32_t rank, const Message&)> deliver;
  std::function<void(const Message&)> to_introducer;
  /// All ranks of this process have left: `message` is the last one on every connection.
  std::function<void(const Message& message)> announce_leave;
  AgentHooks hooks = {};
};

/// A gather of a group that is under way.
struct Gather {
  Contributions contributions;   // what this process and those below have given
  std::set<uint32_t> ranks;      // ranks of this process that have given theirs
  std::set<uint32_t> processes;  // processes below that have
};

/// Who is missing in a gather.
struct GatherInquiry {
  uint64_t gather = 0;
  Clock::time_point until{};
  Error error;  // kInProgress: the ranks are told who is missing; else the group fails with that
  std::vector<MissingRank> missing;
  uint32_t asker = kNobody;
};

/// A group that ranks of this process are in.
struct AgentGroup {
  std::shared_ptr<const GroupLayout> layout;
  uint32_t position = 0;      // where this process stands in the group's tree
  size_t expected = 0;        // number of ranks of this process and of those below
  std::set<uint32_t> ranks;   // the ranks of this process
  std::set<uint32_t> opened;  // those of `ranks` that have opened it
  std::map<uint64_t, Gather> gathers;
  std::map<uint32_t, uint64_t> done;  // rank of this process -> its gathers so far
  std::map<uint32_t, LeaveNote> left;
  size_t left_below = 0;             // those in `left` that are of this process or of one below
  bool is_compared = false;          // the records in `left` are, as far as they have to be
  std::optional<uint32_t> notes_at;  // who has the notes of `left` now, if not this process
  std::optional<Error> failure;
  FailureCause cause = FailureCause::kFailed;  // why there is `failure`
  std::optional<GatherInquiry> inquiry;
  std::string last_named;  // who is missing in which gather, as the root last had a rank say
  std::optional<std::pair<uint32_t, Clock::time_point>> suspect;  // a process that is needed and
                                                                  // gone, and until when it may
                                                                  // still be heard of
  [[nodiscard]] std::optional<uint32_t> parent() const;  // process; nullopt: this is the root
  [[nodiscard]] std::vector<uint32_t> children() const;  // processes
  /// All below have contributed to a gather, and the parent has that.
  [[nodiscard]] bool awaits_result() const;
  /// A gather waits for this process, the parent or a child.
  [[nodiscard]] bool waits_for(uint32_t process) const;
};

struct AgentState {
  uint64_t world;  // id of the group of all ranks
  AgentOutput out;
  std::shared_ptr<const FamilyMap> map = nullptr;
  uint32_t self = 0;              // this process
  std::set<uint32_t> ranks = {};  // the ranks of this process
  bool is_over = false;           // all of them have left
  // The table as bytes for the processes below, until the first gather of all has ended.
  std::string table = {};
  std::set<uint32_t> dead = {};
  // Processes that have left, or refuse connections, and until when their last messages may come.
  std::map<uint32_t, Clock::time_point> gone = {};
  std::map<std::tuple<FailureNotice::Kind, uint32_t, uint64_t>, FailureNotice> notices = {};
  std::map<uint64_t, AgentGroup> groups = {};
  // Group and a rank that has left its process -> how many processes do not have its record.
  std::map<std::pair<uint64_t, uint32_t>, size_t> seeks = {};
  Clock::time_point now{};

  [[nodiscard]] AgentGroup* find(uint64_t id);
  AgentGroup& make_group(uint64_t id, std::shared_ptr<const GroupLayout> layout);
  [[nodiscard]] std::vector<uint64_t> group_ids() const;
  [[nodiscard]] std::string name_of(uint32_t rank) const { return map->table.name_of(rank); }
  [[nodiscard]] bool is_gone(uint32_t process) const {
    return dead.count(process) + gone.count(process) != 0;
  }
  /// Whether it is a rank of this process, or of one below it in the group's tree.
  [[nodiscard]] bool is_below(const AgentGroup& group, uint32_t rank) const;
  /// The process that is to be told in place of the parent of `position`: the nearest ancestor that
  /// is there, else the first process that is; nullopt: that is this one.
  [[nodiscard]] std::optional<uint32_t> next_alive(const ControlTree& tree,
                                                   uint32_t position) const;
  /// `group` needs `process`, which is gone, and gives it some time to be heard of.
  void suspect(AgentGroup& group, uint32_t process) const;
};

/// The notice of a death may be under way.
inline constexpr auto kSuspicionTime = std::chrono::seconds(1);

/// Fails a group on all its ranks, here and elsewhere. `rank`: whose failure it is.
using FailGroup = std::function<void(uint64_t id, uint32_t rank, const Error& error)>;

}  // namespace plexus
