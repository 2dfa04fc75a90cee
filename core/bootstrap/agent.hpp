// SPDX-License-Identifier: Apache-2.0
// The agent: the control endpoint of one process for one family (the ranks that joined with one
// unique id). Agents form a tree (ControlTree) that carries the table of processes and all news;
// the gathers of a group go through a tree over its members' processes; control messages and probes
// go from agent to agent directly. No process is needed by others: what a process knows of a group
// is what its own ranks and those below it in that group's tree said.
//
//   gather   up with concatenation, down with the result; a group in which a member dies fails, so
//            the trees of groups are never mended
//   news     a death or a failure; each agent passes it on once, to all its neighbours in the tree
//            over all processes. That tree is mended: when a parent dies or leaves, its children go
//            to the nearest ancestor that is there, else to the first process that is
//   leaving  is noted as a gather is; when all members have left a group, its root says so
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
#include <tuple>
#include <utility>
#include <vector>

#include "core/base/clock.hpp"
#include "core/bootstrap/agent_hooks.hpp"
#include "core/bootstrap/gathered.hpp"
#include "core/bootstrap/message.hpp"
#include "core/bootstrap/process_table.hpp"

namespace plexus {

inline constexpr size_t kGathersMax = 64;        // unfinished gathers per group
inline constexpr size_t kEarlyGroupsMax = 1024;  // of which messages came before a rank opened them

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
  std::function<void(const Message& message)> say_goodbye;
  AgentHooks hooks = {};
};

/// Threads: one at a time.
class Agent {
 public:
  enum class Loss {
    kBroken,   // a connection ended without goodbye: the process died
    kRefused,  // nothing listens there: it died or left
  };
  using MakeMap = std::function<Result<std::shared_ptr<const FamilyMap>>(std::string_view)>;

  /// `world`: id of the group of all ranks. `make_map`: decodes a table.
  Agent(uint64_t world,
        uint64_t process_id,
        AgentOutput output,
        MakeMap make_map = FamilyMap::decode)
      : world_(world),
        process_id_(process_id),
        out_(std::move(output)),
        make_map_(std::move(make_map)) {}

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
  void lose(uint32_t process, Loss how, std::string_view why = {});
  /// This process can no longer take part: all its groups fail. `rank`: of this process.
  void break_down(uint32_t rank, const Error& error);
  /// To be called about ten times a second.
  void tick(Clock::time_point now);

  /// nullptr: no table yet.
  [[nodiscard]] const FamilyMap* map() const noexcept { return map_.get(); }
  [[nodiscard]] uint32_t self() const noexcept { return self_; }
  /// All ranks of this process have left.
  [[nodiscard]] bool is_over() const noexcept { return is_over_; }
  /// Number of groups that state is kept for.
  [[nodiscard]] size_t groups() const noexcept { return groups_.size(); }
  [[nodiscard]] bool knows_death_of(uint32_t process) const { return dead_.count(process) != 0; }
  [[nodiscard]] std::optional<uint32_t> parent() const noexcept { return parent_; }
  /// Ranks of a group whose processes are known to have died or left, in rank order of the group.
  [[nodiscard]] std::vector<uint32_t> gone_ranks(uint64_t group) const;
  /// In the tree over all processes.
  [[nodiscard]] bool is_neighbour(uint32_t process) const {
    return parent_ == process || children_.count(process) != 0;
  }

 private:
  static constexpr auto kTableTime = std::chrono::seconds(5);  // on its way from process to process
  struct Gather {
    Contributions contributions;   // of this process and of those below
    std::set<uint32_t> ranks;      // of this process, that contributed
    std::set<uint32_t> processes;  // below, that did
  };
  struct Inquiry {
    uint64_t gather = 0;
    Clock::time_point until{};
    Error error;  // kInProgress: the ranks are told who is missing; else the group fails with that
    std::vector<MissingRank> missing;
    uint32_t asker = kNobody;
  };
  struct Group {
    std::shared_ptr<const GroupLayout> layout;
    uint32_t position = 0;      // of this process
    size_t expected = 0;        // ranks of this process and of those below
    std::set<uint32_t> ranks;   // of this process
    std::set<uint32_t> opened;  // of these, that opened it
    std::map<uint64_t, Gather> gathers;
    std::map<uint32_t, uint64_t> done;  // rank of this process -> its gathers so far
    std::map<uint32_t, LeaveNote> left;
    size_t left_below = 0;             // of those, ranks of this process and of those below
    bool is_compared = false;          // their records, as far as they have to be
    std::optional<uint32_t> notes_at;  // who has the notes of `left` now, if not this process
    std::optional<Error> failure;
    FailureCause cause = FailureCause::kFailed;  // of `failure`
    std::optional<Inquiry> inquiry;
    std::string told;  // of the root: for whom which gather waits, as a rank has said for the job
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

  // -- from ranks --
  Result<void> take_group(uint32_t rank, const Message& message);
  Result<void> take_contribution(uint32_t rank, const Message& message);
  Result<void> take_post(uint32_t rank, Message message);
  Result<void> take_probe(uint32_t rank, Message message);
  void take_failure(uint32_t rank, const Message& message);
  [[nodiscard]] Error describe_failure(uint32_t rank, const Error& error) const;
  Result<void> take_leave_group(uint32_t rank, Message message);
  void leave(uint32_t rank);
  // -- from agents --
  Result<void> take_of_group(uint32_t process, Message message);
  Result<void> take_contributions(Group& group, uint32_t process, const Message& message);
  Result<void> take_gathered(Group& group, uint32_t process, const Message& message);
  Result<void> take_notes(Group& group, const Message& message);
  void take_who(uint32_t process, const Message& message);
  Result<void> take_missing(Group& group, const Message& message);
  Result<void> take_attach(uint32_t process, const Message& message);
  Result<void> take_news(uint32_t process, const Message& message);
  void take_remote_probe(uint32_t process, const Message& message);
  Result<void> take_left(const Message& message);

  Group* find(uint64_t id);
  const Group* find_for(uint32_t rank, const Message& message);
  [[nodiscard]] std::vector<uint64_t> group_ids() const;
  Group& make_group(uint64_t id, std::shared_ptr<const GroupLayout> layout);
  void take_early(uint64_t id);
  void fail_for_disagreement(uint64_t id, uint32_t one, uint32_t other);
  void progress(uint64_t id, Group& group, uint64_t number);
  void finish(uint64_t id, Group& group, uint64_t number);
  void pass_down(uint64_t id, Group& group, const Message& gathered);
  void note(uint64_t id, Group& group, LeaveNote note);
  [[nodiscard]] bool is_below(const Group& group, uint32_t rank) const;
  [[nodiscard]] bool is_left_by_all(const Group& group) const;
  void check_left(uint64_t id, Group& group);
  void compare_left(uint64_t id, Group& group, uint32_t rank);
  void progress_leaving(uint64_t id, Group& group);
  void take_back_notes(uint32_t process);
  void send_notes(uint64_t id, const Group& group, uint32_t process);
  void end_group(uint64_t id, Group& group);
  void inquire(uint32_t asker, Group& group, const Message& overdue);
  void ask_below(uint64_t id, Group& group, uint64_t number, uint32_t parent);
  void conclude(uint64_t id, Group& group);
  void tell_late(const Group& group, const Message& late);
  [[nodiscard]] std::vector<MissingRank> explain_missing(const std::vector<uint32_t>& ranks) const;
  void fail_group(
      uint64_t id, Group& group, uint32_t spared, const Error& error, FailureCause cause);
  void tell_failure(uint64_t id, uint32_t rank, const Error& error, FailureCause cause) const;
  void fail_with_dead(uint64_t id, Group& group);
  void spread(News news, std::optional<uint32_t> source, uint32_t spared);
  void spread_failure(uint64_t id, uint32_t rank, const Error& error, uint32_t spared = kNobody);
  void apply(const News& news, uint32_t spared);
  void attach();
  void adopt_children_of(uint32_t process);
  void look_for_table(Clock::time_point now);
  void look_for_missing(Group& group);
  void suspect(Group& group, uint32_t process) const;
  void miss(uint32_t process, Clock::duration time);
  void take_goodbye(uint32_t process);
  [[nodiscard]] std::optional<uint32_t> stand_in(const ControlTree& tree, uint32_t position) const;
  [[nodiscard]] std::optional<uint32_t> heir_of(const Group& group) const;
  [[nodiscard]] bool is_gone(uint32_t process) const {
    return dead_.count(process) + gone_.count(process) != 0;
  }
  [[nodiscard]] std::vector<News> all_news() const;
  [[nodiscard]] std::string name_of(uint32_t rank) const;
  void fail_world(const Error& error);

  uint64_t world_;
  uint64_t process_id_;
  AgentOutput out_;
  MakeMap make_map_;
  std::shared_ptr<const FamilyMap> map_;
  uint32_t self_ = 0;
  std::set<uint32_t> ranks_;    // of this process
  std::set<uint32_t> present_;  // of these, that have not left the family
  bool have_all_joined_ = false;
  std::string lost_introducer_;  // its address
  std::optional<Clock::time_point> table_due_;
  bool is_over_ = false;
  // Messages of this process's ranks, until the table is there.
  std::vector<std::pair<uint32_t, Message>> waiting_;
  std::string table_;  // for the processes below, until the first gather of all has ended

  std::optional<uint32_t> parent_;  // in the tree over all processes
  std::set<uint32_t> children_;
  std::set<uint32_t> dead_;
  // Left, or refuses connections, and until when its last messages may come.
  std::map<uint32_t, Clock::time_point> gone_;
  std::map<std::tuple<News::Kind, uint32_t, uint64_t>, News> news_;

  std::map<uint64_t, Group> groups_;
  std::map<uint64_t, std::vector<std::pair<uint32_t, Message>>> early_;  // of groups not opened yet
  // Group and a rank that has left its process -> how many processes do not have its record.
  std::map<std::pair<uint64_t, uint32_t>, size_t> seeks_;
  Clock::time_point now_{};
  Clock::time_point next_look_{};
};

}  // namespace plexus
