// SPDX-License-Identifier: Apache-2.0
#include "core/control/agent.hpp"

#include <algorithm>

#include "guest/assert.hpp"

namespace plexus {
namespace {

constexpr size_t kEarlyMessagesMax = 4096;  // per group
constexpr auto kLookPause = std::chrono::seconds(1);

/// For the others. Wrong usage is everybody's error; its text may name the ranks at fault, or else
/// this one is.
Error describe_failure(const AgentState& state, uint32_t rank, const Error& error) {
  const bool is_usage = error.code() == Code::kInvalidUsage;
  if (is_usage && error.message().find("rank ") != std::string::npos) {
    return error.clone();
  }
  return fail(is_usage ? Code::kInvalidUsage : Code::kRemoteError, "{} failed: {}",
              state.name_of(rank), error.message());
}

Error describe_lost_introducer(std::string_view address) {
  return fail(Code::kRemoteError,
              "the process that made the unique id ({}) died or lost its connection before "
              "all ranks had joined",
              address);
}

}  // namespace

// ---- joining ----

Result<void> Agent::join(const JoinInfo& info) {
  if (state_.map != nullptr || have_all_joined_ || state_.is_over) {
    return fail(Code::kInvalidUsage,
                "rank {} joins a job in which all ranks have joined: give every rank the same "
                "unique id and number of ranks, and a rank of its own",
                info.rank);
  }
  if (!lost_introducer_.empty()) {  // the ranks that had joined before have been told
    return describe_lost_introducer(lost_introducer_);
  }
  if (!state_.ranks.insert(info.rank).second) {
    const Error error = fail(
        Code::kInvalidUsage,
        "two communicators of {}:{} both say they are rank {}: give every rank the same unique "
        "id and number of ranks, and a rank of its own",
        info.process.host, info.process.pid, info.rank);
    state_.out.to_introducer(
        {.type = MessageType::kFail, .from = info.rank, .payload = encode(error)});
    return error.clone();
  }
  present_.insert(info.rank);
  state_.out.to_introducer({.type = MessageType::kJoin, .payload = encode(info)});
  return ok();
}

void Agent::take_from_introducer(const Message& message) {
  switch (message.type) {
    case MessageType::kJoined:
      have_all_joined_ = true;
      return;
    case MessageType::kTable:
      if (auto taken = take_table(message); taken.has_error()) {
        fail_world(taken.error());
      }
      return;
    case MessageType::kFail:
      fail_world(decode_error(message.payload));
      return;
    case MessageType::kLate:
      if (!present_.empty()) {
        state_.out.deliver(present_.count(message.from) != 0 ? message.from : *present_.begin(),
                           message);
      }
      return;
    default:
      return;  // the introducer sends no other types
  }
}

void Agent::lose_introducer(std::string_view address) {
  lost_introducer_ = address;
  table_due_ = state_.now + 2 * kTableTime;  // others may still be passing it on
  if (state_.map == nullptr && !have_all_joined_) {
    fail_world(describe_lost_introducer(address));
  }
}

/// Before the table is there. Later failures are failure notices.
void Agent::fail_world(const Error& error) {
  if (state_.map != nullptr || state_.is_over) {
    return;
  }
  waiting_.clear();
  for (const uint32_t rank : state_.ranks) {
    membership_.tell_failure(state_.world, rank, error, FailureCause::kFailed);
  }
}

Result<void> Agent::take_table(const Message& message) {
  if (state_.map != nullptr || state_.is_over) {
    return ok();  // whoever adopted this process cannot know that it has the table
  }
  PLEXUS_TRY(map, make_map_(message.payload));
  state_.table = message.payload;
  return open(std::move(map));
}

Result<void> Agent::open(std::shared_ptr<const FamilyMap> map) {
  const auto self = map->table.find(process_id_);
  if (!self.has_value()) {
    return break_of_protocol("a table without this process");
  }
  const auto ranks = map->table.ranks_of(*self);
  if (state_.ranks.empty()) {
    state_.ranks = {ranks.begin(), ranks.end()};
    present_ = state_.ranks;
  }
  if (!std::equal(state_.ranks.begin(), state_.ranks.end(), ranks.begin(), ranks.end())) {
    return break_of_protocol("a table with other ranks of this process");
  }
  PLEXUS_DCHECK(state_.groups.empty(), state_.groups.size());
  state_.map = std::move(map);
  state_.self = *self;
  AgentGroup& world = state_.make_group(state_.world, state_.map->all);
  world.opened = state_.ranks;
  membership_.open(world);
  for (const uint32_t child : world.children()) {
    state_.out.send(child,
                    {.type = MessageType::kTable, .group = state_.world, .payload = state_.table});
  }
  state_.out.to_introducer({.type = MessageType::kLeave});
  for (auto& [rank, message] : std::exchange(waiting_, {})) {
    (void)take(rank, std::move(message));
  }
  return ok();
}

// ---- from ranks of this process ----

Result<void> Agent::take(uint32_t rank, Message message) {
  if (present_.count(rank) == 0) {
    return break_of_protocol("a message of a rank that has not joined or has left");
  }
  if (state_.map == nullptr) {
    const bool leaves = message.type == MessageType::kLeaveGroup;
    if (message.type == MessageType::kLeave) {
      leave(rank);
    } else if (leaves || message.type == MessageType::kFail) {
      const Error error =
          leaves ? fail(Code::kInvalidUsage,
                        "rank {} has destroyed a communicator before all ranks had joined", rank)
                 : decode_error(message.payload);
      state_.out.to_introducer(
          {.type = MessageType::kFail, .from = rank, .payload = encode(error)});
      if (leaves) {
        state_.out.deliver(rank, {.type = MessageType::kLeaveGroup, .group = message.group});
      }
    } else {
      waiting_.emplace_back(rank, std::move(message));
    }
    return ok();
  }
  switch (message.type) {
    case MessageType::kGroup:
      return take_group(rank, message);
    case MessageType::kGather:
      return gathers_.take_contribution(rank, message);
    case MessageType::kPost:
      return take_post(rank, std::move(message));
    case MessageType::kProbe:
      return probes_.take(rank, std::move(message));
    case MessageType::kFail:
      take_failure(rank, message);
      return ok();
    case MessageType::kLeaveGroup:
      return leaving_.take_leave_group(rank, std::move(message));
    case MessageType::kLeave:
      leave(rank);
      return ok();
    default:
      return break_of_protocol("a message that no rank sends");
  }
}

Result<void> Agent::take_group(uint32_t rank, const Message& message) {
  PLEXUS_TRY(ranks, decode_ranks(message.payload));
  AgentGroup* group = state_.find(message.group);
  if (group == nullptr) {
    auto sorted = ranks;
    std::sort(sorted.begin(), sorted.end());
    const bool distinct = std::adjacent_find(sorted.begin(), sorted.end()) == sorted.end();
    if (sorted.back() >= state_.map->table.nranks() || !distinct ||
        !std::binary_search(sorted.begin(), sorted.end(), rank)) {
      return break_of_protocol("a group of ranks that are not there");
    }
    group = &state_.make_group(
        message.group, std::make_shared<const GroupLayout>(state_.map->table, std::move(ranks)));
  } else if (group->layout->members != ranks) {
    gathers_.fail_for_disagreement(message.group, rank, rank);
  }
  group->opened.insert(rank);
  if (group->failure.has_value()) {
    membership_.tell_failure(message.group, rank, *group->failure, group->cause);
    return ok();
  }
  const auto failure = state_.notices.find({FailureNotice::Kind::kFailure, 0, message.group});
  if (failure != state_.notices.end()) {
    membership_.fail_group(message.group, *group, kNobody,
                           fail(failure->second.code, "{}", failure->second.text),
                           FailureCause::kFailed);
  }
  membership_.fail_with_dead(message.group, *group);
  take_early(message.group);
  return ok();
}

/// Messages of other agents that came before a rank of this process opened the group.
void Agent::take_early(uint64_t id) {
  auto early = early_.extract(id);
  if (early.empty()) {
    return;
  }
  for (auto& [process, message] : early.mapped()) {
    (void)take_from(process, std::move(message));
  }
}

Result<void> Agent::take_post(uint32_t rank, Message message) {
  const AgentGroup* const group = find_group(state_, rank, message);
  if (group == nullptr) {
    return break_of_protocol("a control message that cannot be delivered");
  }
  message.from = rank;
  const uint32_t process = state_.map->table.process_of(message.to);
  if (process == state_.self) {
    if (group->left.count(message.to) == 0) {
      state_.out.deliver(message.to, message);
    }
  } else if (!state_.is_gone(process)) {
    state_.out.send(process, message);
  }
  return ok();
}

void Agent::take_failure(uint32_t rank, const Message& message) {
  AgentGroup* const group = state_.find(message.group);
  const Error error = decode_error(message.payload);
  if (group == nullptr) {  // it was to make a group, and cannot; see Exchange::fail_subgroup()
    membership_.fail_everywhere(message.group, rank, describe_failure(state_, rank, error));
    return;
  }
  if (group->ranks.count(rank) == 0) {
    return;
  }
  if (error.code() == Code::kInProgress || error.code() == Code::kTimeout) {
    if (group->gathers.count(message.tag) != 0) {
      gathers_.inquire(rank, *group, message);
      return;
    }
    if (error.code() == Code::kInProgress) {
      return;  // it is over
    }
  }
  membership_.fail_everywhere(message.group, rank, describe_failure(state_, rank, error), rank);
}

void Agent::leave(uint32_t rank) {
  const size_t erased = present_.erase(rank);
  PLEXUS_DCHECK(erased == 1 && !state_.is_over, rank, erased);
  if (!present_.empty()) {
    return;
  }
  state_.is_over = true;
  leaving_.hand_over();
  state_.out.announce_leave({.type = MessageType::kLeave,
                             .group = state_.world,
                             .payload = encode(membership_.all_notices())});
}

// ---- from agents ----

Result<void> Agent::take_from(uint32_t process, Message message) {
  if (state_.map == nullptr || process >= state_.map->table.nprocesses() ||
      process == state_.self) {
    return break_of_protocol("a message of a process that is not known");
  }
  switch (message.type) {
    case MessageType::kTable:
      membership_.take_adoption(process);
      return ok();
    case MessageType::kAttach:
      return membership_.take_attach(process, message);
    case MessageType::kFailureNotice:
      return membership_.take_notices(process, message);
    case MessageType::kLeave: {
      auto heard = membership_.take_notices(process, message);
      membership_.take_leave(process);
      return heard;
    }
    case MessageType::kMissingQuery:
      gathers_.take_missing_query(process, message);
      return ok();
    case MessageType::kLeft:
      return probes_.take_answer(message);
    case MessageType::kProbe:
      probes_.take_from(process, message);
      return ok();
    default:
      return take_of_group(process, std::move(message));
  }
}

Result<void> Agent::take_of_group(uint32_t process, Message message) {
  AgentGroup* const group = state_.find(message.group);
  if (group == nullptr || group->opened.empty()) {
    if (group == nullptr && early_.count(message.group) == 0 && early_.size() >= kEarlyGroupsMax) {
      early_.erase(early_.begin());
    }
    auto& early = early_[message.group];
    if (early.size() < kEarlyMessagesMax) {
      early.emplace_back(process, std::move(message));
    }
    return ok();
  }
  switch (message.type) {
    case MessageType::kGather:
      return gathers_.take_contributions(*group, process, message);
    case MessageType::kGathered:
      return gathers_.take_gathered(*group, process, message);
    case MessageType::kLeaveGroup:
      return leaving_.take_notes(*group, message);
    case MessageType::kMissing:
      return gathers_.take_missing(*group, message);
    case MessageType::kOverdue:
      gathers_.inquire(message.from, *group, message);
      return ok();
    case MessageType::kLate:
      if (group->parent() == process) {
        gathers_.tell_late(*group, message);
      }
      return ok();
    case MessageType::kOver:
      if (group->parent() == process && group->opened.size() <= group->left.size()) {
        leaving_.end_group(message.group, *group);
      }
      return ok();
    case MessageType::kPost:
      if (!group->layout->has(message.from) ||
          state_.map->table.process_of(message.from) != process ||
          group->ranks.count(message.to) == 0) {
        return break_of_protocol("a control message that cannot be delivered");
      }
      if (group->left.count(message.to) == 0) {
        state_.out.deliver(message.to, message);
      }
      return ok();
    default:
      return break_of_protocol("a message that no agent sends");
  }
}

// ---- time ----

void Agent::break_down(uint32_t rank, const Error& error) {
  fail_world(error);
  for (const uint64_t id : state_.group_ids()) {
    membership_.fail_everywhere(
        id, rank, fail(Code::kRemoteError, "{} failed: {}", state_.name_of(rank), error.message()));
  }
}

/// All have joined, but those that were to pass on the table have died or are stopped: the
/// introducer has it too.
void Agent::look_for_table(Clock::time_point now) {
  if (state_.map != nullptr || !have_all_joined_ || present_.empty()) {
    return;
  }
  table_due_ = table_due_.value_or(now + kTableTime);
  if (now < *table_due_) {
    return;
  }
  table_due_ = now + kTableTime;
  if (lost_introducer_.empty()) {
    state_.out.to_introducer({.type = MessageType::kTable, .tag = process_id_});
    return;
  }
  fail_world(fail(Code::kRemoteError,
                  "the process that made the unique id ({}) and those that were to pass on the "
                  "table of processes died or lost their connections while the ranks joined",
                  lost_introducer_));
}

void Agent::tick(Clock::time_point now) {
  state_.now = now;
  look_for_table(now);
  const bool looks = state_.map != nullptr && now >= next_look_;
  if (looks) {
    next_look_ = now + kLookPause;
  }
  std::vector<uint64_t> ids;
  for (auto& [id, group] : state_.groups) {
    if (looks && !group.gathers.empty()) {
      membership_.look_for_missing(group);
    }
    if (group.inquiry.has_value() || group.suspect.has_value()) {
      ids.push_back(id);
    }
  }
  for (const uint64_t id : ids) {
    AgentGroup& group = state_.groups.at(id);
    if (group.suspect.has_value() && !group.waits_for(group.suspect->first)) {
      group.suspect
          .reset();  // its leave message came over another connection, before its last message
    }
    if (group.inquiry.has_value() && now >= group.inquiry->until) {
      if (!group.parent().has_value()) {
        gathers_.conclude(id, group);
      } else if (group.inquiry->error.code() == Code::kInProgress) {
        group.inquiry.reset();  // the root has heard of it, and may be asked again later
      }
    }
    if (group.suspect.has_value() && now >= group.suspect->second) {
      membership_.give_up_suspect(id, group);
    }
  }
}

}  // namespace plexus
