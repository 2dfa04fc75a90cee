// SPDX-License-Identifier: Apache-2.0
#include "core/bootstrap/agent.hpp"

#include <algorithm>

#include "core/base/hash.hpp"
#include "guest/assert.hpp"

namespace plexus {
namespace {

constexpr size_t kEarlyMessagesMax = 4096;  // per group

std::vector<uint32_t> processes_of(const ProcessTable& table, const std::vector<uint32_t>& ranks) {
  std::vector<uint32_t> processes;
  processes.reserve(ranks.size());
  for (const uint32_t rank : ranks) {
    processes.push_back(table.process_of(rank));
  }
  std::sort(processes.begin(), processes.end());
  processes.erase(std::unique(processes.begin(), processes.end()), processes.end());
  return processes;
}

std::vector<uint32_t> sort(std::vector<uint32_t> ranks) {
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

/// `note`: nullptr: it is not here.
Message answer_to(const Message& probe, const LeaveNote* note) {
  return {.type = MessageType::kLeft,
          .from = probe.to,
          .to = probe.from,
          .group = probe.group,
          .tag = note == nullptr ? 1U : 0U,
          .payload = note == nullptr ? std::string() : note->record};
}

}  // namespace

GroupLayout::GroupLayout(const ProcessTable& table, std::vector<uint32_t> ranks)
    : members(std::move(ranks)),
      sorted(std::is_sorted(members.begin(), members.end()) ? std::vector<uint32_t>()
                                                            : sort(members)),
      tree(table, processes_of(table, members)) {
  Fnv1a hash;
  for (const uint32_t member : members) {
    hash.mix(member);
  }
  fingerprint = static_cast<uint32_t>(hash.value());
}

bool GroupLayout::has(uint32_t rank) const {
  const std::vector<uint32_t>& in_order = sorted.empty() ? members : sorted;
  return std::binary_search(in_order.begin(), in_order.end(), rank);
}

FamilyMap::FamilyMap(ProcessTable processes)
    : table(std::move(processes)),
      all(std::make_shared<const GroupLayout>(table, all_ranks(table.nranks()))) {}

Result<std::shared_ptr<const FamilyMap>> FamilyMap::decode(std::string_view table) {
  PLEXUS_TRY(processes, ProcessTable::decode(table));
  return std::make_shared<const FamilyMap>(std::move(processes));
}

std::optional<uint32_t> Agent::Group::parent() const {
  const auto at = layout->tree.parent(position);
  return at.has_value() ? std::optional(layout->tree.process_at(*at)) : std::nullopt;
}

std::vector<uint32_t> Agent::Group::children() const {
  auto found = layout->tree.children(position);
  for (uint32_t& child : found) {
    child = layout->tree.process_at(child);
  }
  return found;
}

bool Agent::Group::awaits_result() const {
  return std::any_of(gathers.begin(), gathers.end(), [this](const auto& gather) {
    return gather.second.contributions.size() == expected;
  });
}

bool Agent::Group::waits_for(uint32_t process) const {
  if (parent() == process) {
    return awaits_result();
  }
  return std::any_of(gathers.begin(), gathers.end(), [process](const auto& gather) {
    return gather.second.processes.count(process) == 0;
  });
}

// ---- joining ----

Result<void> Agent::join(const JoinInfo& info) {
  if (map_ != nullptr || have_all_joined_ || is_over_) {
    return fail(Code::kInvalidUsage,
                "rank {} joins a job in which all ranks have joined: give every rank the same "
                "unique id and number of ranks, and a rank of its own",
                info.rank);
  }
  if (!ranks_.insert(info.rank).second) {
    const Error error = fail(
        Code::kInvalidUsage,
        "two communicators of {}:{} both say they are rank {}: give every rank the same unique "
        "id and number of ranks, and a rank of its own",
        info.process.host, info.process.pid, info.rank);
    out_.to_introducer({.type = MessageType::kFail, .from = info.rank, .payload = encode(error)});
    return error.clone();
  }
  present_.insert(info.rank);
  out_.to_introducer({.type = MessageType::kJoin, .payload = encode(info)});
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
        out_.deliver(present_.count(message.from) != 0 ? message.from : *present_.begin(), message);
      }
      return;
    default:
      return;  // the introducer sends no other types
  }
}

void Agent::lose_introducer(std::string_view address) {
  lost_introducer_ = address;
  table_due_ = now_ + 2 * kTableTime;  // others may still be passing it on
  if (map_ == nullptr && !have_all_joined_) {
    fail_world(fail(Code::kRemoteError,
                    "the process that made the unique id ({}) died or lost its connection before "
                    "all ranks had joined",
                    address));
  }
}

/// Before the table is there. Later failures are news.
void Agent::fail_world(const Error& error) {
  if (map_ != nullptr || is_over_) {
    return;
  }
  waiting_.clear();
  for (const uint32_t rank : ranks_) {
    tell_failure(world_, rank, error, FailureCause::kFailed);
  }
}

Result<void> Agent::take_table(const Message& message) {
  if (map_ != nullptr || is_over_) {
    return ok();  // whoever adopted this process cannot know that it has the table
  }
  PLEXUS_TRY(map, make_map_(message.payload));
  table_ = message.payload;
  return open(std::move(map));
}

Result<void> Agent::open(std::shared_ptr<const FamilyMap> map) {
  const auto self = map->table.find(process_id_);
  if (!self.has_value()) {
    return break_of_protocol("a table without this process");
  }
  const auto ranks = map->table.ranks_of(*self);
  if (ranks_.empty()) {
    ranks_ = {ranks.begin(), ranks.end()};
    present_ = ranks_;
  }
  if (!std::equal(ranks_.begin(), ranks_.end(), ranks.begin(), ranks.end())) {
    return break_of_protocol("a table with other ranks of this process");
  }
  PLEXUS_DCHECK(groups_.empty() && parent_ == std::nullopt && children_.empty(), groups_.size());
  map_ = std::move(map);
  self_ = *self;
  Group& world = make_group(world_, map_->all);
  world.opened = ranks_;
  parent_ = world.parent();
  const auto below = world.children();
  children_ = {below.begin(), below.end()};
  PLEXUS_DCHECK(parent_.value_or(0) <= self_ && (children_.empty() || *children_.begin() > self_),
                self_);
  for (const uint32_t child : below) {
    out_.send(child, {.type = MessageType::kTable, .group = world_, .payload = table_});
  }
  out_.to_introducer({.type = MessageType::kLeave});
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
  if (map_ == nullptr) {
    const bool leaves = message.type == MessageType::kLeaveGroup;
    if (message.type == MessageType::kLeave) {
      leave(rank);
    } else if (leaves || message.type == MessageType::kFail) {
      const Error error =
          leaves ? fail(Code::kInvalidUsage,
                        "rank {} has destroyed a communicator before all ranks had joined", rank)
                 : decode_error(message.payload);
      out_.to_introducer({.type = MessageType::kFail, .from = rank, .payload = encode(error)});
      if (leaves) {
        out_.deliver(rank, {.type = MessageType::kLeaveGroup, .group = message.group});
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
      return take_contribution(rank, message);
    case MessageType::kPost:
      return take_post(rank, std::move(message));
    case MessageType::kProbe:
      return take_probe(rank, std::move(message));
    case MessageType::kFail:
      take_failure(rank, message);
      return ok();
    case MessageType::kLeaveGroup:
      return take_leave_group(rank, std::move(message));
    case MessageType::kLeave:
      leave(rank);
      return ok();
    default:
      return break_of_protocol("a message that no rank sends");
  }
}

Agent::Group* Agent::find(uint64_t id) {
  const auto at = groups_.find(id);
  return at == groups_.end() ? nullptr : &at->second;
}

/// The group in which `rank` may send `message` to another rank.
const Agent::Group* Agent::find_for(uint32_t rank, const Message& message) {
  const Group* const group = find(message.group);
  const bool fits = group != nullptr && group->layout->has(rank) &&
                    group->layout->has(message.to) && message.payload.size() <= kBlobBytesMax;
  return fits ? group : nullptr;
}

std::vector<uint64_t> Agent::group_ids() const {
  std::vector<uint64_t> ids;
  ids.reserve(groups_.size());
  for (const auto& [id, group] : groups_) {
    ids.push_back(id);
  }
  return ids;
}

Agent::Group& Agent::make_group(uint64_t id, std::shared_ptr<const GroupLayout> layout) {
  PLEXUS_DCHECK(groups_.count(id) == 0, id);
  Group& group = groups_[id];
  group.layout = std::move(layout);
  const ControlTree& tree = group.layout->tree;
  const auto mine = tree.position_of(self_);
  PLEXUS_DCHECK(mine.has_value(), id, self_);  // a rank of this process is in it
  group.position = mine.value_or(0);
  for (const uint32_t position : tree.subtree(group.position)) {
    for (const uint32_t rank : map_->table.ranks_of(tree.process_at(position))) {
      if (group.layout->has(rank)) {
        ++group.expected;
        if (position == group.position) {
          group.ranks.insert(rank);
        }
      }
    }
  }
  PLEXUS_DCHECK(!group.ranks.empty() && group.ranks.size() <= group.expected, group.expected);
  return group;
}

Result<void> Agent::take_group(uint32_t rank, const Message& message) {
  PLEXUS_TRY(ranks, decode_ranks(message.payload));
  Group* group = find(message.group);
  if (group == nullptr) {
    auto sorted = sort(ranks);
    const bool distinct = std::adjacent_find(sorted.begin(), sorted.end()) == sorted.end();
    if (sorted.back() >= map_->table.nranks() || !distinct ||
        !std::binary_search(sorted.begin(), sorted.end(), rank)) {
      return break_of_protocol("a group of ranks that are not there");
    }
    group = &make_group(message.group,
                        std::make_shared<const GroupLayout>(map_->table, std::move(ranks)));
  } else if (group->layout->members != ranks) {
    fail_for_disagreement(message.group, rank, rank);
  }
  group->opened.insert(rank);
  if (group->failure.has_value()) {
    tell_failure(message.group, rank, *group->failure, group->cause);
    return ok();
  }
  const auto failure = news_.find({News::Kind::kFailure, 0, message.group});
  if (failure != news_.end()) {
    fail_group(message.group, *group, kNobody,
               fail(failure->second.code, "{}", failure->second.text), FailureCause::kFailed);
  }
  fail_with_dead(message.group, *group);
  take_early(message.group);
  return ok();
}

void Agent::fail_for_disagreement(uint64_t id, uint32_t one, uint32_t other) {
  spread_failure(id, one,
                 fail(Code::kInvalidUsage,
                      "{} and {} disagree on who is in a new communicator: call ncclCommSplit or "
                      "ncclCommShrink with the same arguments on all ranks",
                      name_of(one), one == other ? "another rank" : name_of(other)));
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
  const Group* const group = find_for(rank, message);
  if (group == nullptr) {
    return break_of_protocol("a control message that cannot be delivered");
  }
  message.from = rank;
  const uint32_t process = map_->table.process_of(message.to);
  if (process == self_) {
    if (group->left.count(message.to) == 0) {
      out_.deliver(message.to, message);
    }
  } else if (!is_gone(process)) {
    out_.send(process, message);
  }
  return ok();
}

Result<void> Agent::take_probe(uint32_t rank, Message message) {
  const Group* const group = find_for(rank, message);
  if (group == nullptr) {
    return break_of_protocol("a probe that cannot be delivered");
  }
  message.from = rank;
  // Whoever holds the leave record, if the rank's process no longer does: the processes above it,
  // and then the first ones, since notes go there.
  const ControlTree& tree = group->layout->tree;
  const uint32_t home = map_->table.process_of(message.to);
  std::vector<uint32_t> holders = {home};
  for (auto at = tree.parent(tree.position_of(home).value_or(0)); at.has_value();
       at = tree.parent(*at)) {
    holders.push_back(tree.process_at(*at));
  }
  for (uint32_t at = 0; at < std::min<uint32_t>(tree.size(), ControlTree::kFanOut); ++at) {
    holders.push_back(tree.process_at(at));
  }
  size_t tried = 0;
  if (const auto seek = seeks_.find({message.group, message.to}); seek != seeks_.end()) {
    tried = seek->second;
  }
  for (; tried < holders.size(); ++tried) {
    const uint32_t holder = holders[tried];
    if (holder == self_) {
      if (const auto left = group->left.find(message.to); left != group->left.end()) {
        out_.deliver(rank, answer_to(message, &left->second));
        return ok();
      }
      if (holder == home) {
        out_.deliver(message.to, message);
        return ok();
      }
    } else if (!is_gone(holder)) {
      out_.send(holder, message);
      return ok();
    }
  }
  seeks_.erase({message.group, message.to});  // from the beginning, the next time
  return ok();
}

void Agent::take_remote_probe(uint32_t process, const Message& message) {
  const Group* const group = find(message.group);
  const bool is_local = ranks_.count(message.to) != 0;
  if (group == nullptr && is_local) {
    return;  // not opened yet; probes are repeated
  }
  const LeaveNote* note = nullptr;
  if (group != nullptr) {
    const auto left = group->left.find(message.to);
    note = left == group->left.end() ? nullptr : &left->second;
  }
  if (note == nullptr && is_local) {
    out_.deliver(message.to, message);
  } else {
    out_.send(process, answer_to(message, note));
  }
}

Result<void> Agent::take_left(const Message& message) {
  const Group* const group = find(message.group);
  if (group == nullptr || !group->layout->has(message.from) ||
      group->ranks.count(message.to) == 0) {
    return ok();
  }
  if (message.tag != 0) {
    ++seeks_[{message.group, message.from}];
  } else if (group->left.count(message.to) == 0) {
    out_.deliver(message.to, message);
  }
  return ok();
}

void Agent::take_failure(uint32_t rank, const Message& message) {
  Group* const group = find(message.group);
  const Error error = decode_error(message.payload);
  if (group == nullptr) {  // it was to make a group, and cannot; see Exchange::fail_subgroup()
    spread_failure(message.group, rank, describe_failure(rank, error));
    return;
  }
  if (group->ranks.count(rank) == 0) {
    return;
  }
  if (error.code() == Code::kInProgress || error.code() == Code::kTimeout) {
    if (group->gathers.count(message.tag) != 0) {
      inquire(rank, *group, message);
      return;
    }
    if (error.code() == Code::kInProgress) {
      return;  // it is over
    }
  }
  spread_failure(message.group, rank, describe_failure(rank, error), rank);
}

/// For the others. Wrong usage is everybody's error; its text may name the ranks at fault, or else
/// this one is.
Error Agent::describe_failure(uint32_t rank, const Error& error) const {
  const bool is_usage = error.code() == Code::kInvalidUsage;
  if (is_usage && error.message().find("rank ") != std::string::npos) {
    return error.clone();
  }
  return fail(is_usage ? Code::kInvalidUsage : Code::kRemoteError, "{} failed: {}", name_of(rank),
              error.message());
}

// ---- from agents ----

Result<void> Agent::take_from(uint32_t process, Message message) {
  if (map_ == nullptr || process >= map_->table.nprocesses() || process == self_) {
    return break_of_protocol("a message of a process that is not known");
  }
  switch (message.type) {
    case MessageType::kTable:
      if (!is_neighbour(process) && process < self_) {  // whose child died
        gone_.erase(process);
        parent_ = process;
      }
      return ok();
    case MessageType::kAttach:
      return take_attach(process, message);
    case MessageType::kNews:
      return take_news(process, message);
    case MessageType::kLeave: {
      auto heard = take_news(process, message);
      take_goodbye(process);
      return heard;
    }
    case MessageType::kWho:
      take_who(process, message);
      return ok();
    case MessageType::kLeft:
      return take_left(message);
    case MessageType::kProbe:
      take_remote_probe(process, message);
      return ok();
    default:
      return take_of_group(process, std::move(message));
  }
}

Result<void> Agent::take_of_group(uint32_t process, Message message) {
  Group* const group = find(message.group);
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
      return take_contributions(*group, process, message);
    case MessageType::kGathered:
      return take_gathered(*group, process, message);
    case MessageType::kLeaveGroup:
      return take_notes(*group, message);
    case MessageType::kMissing:
      return take_missing(*group, message);
    case MessageType::kOverdue:
      inquire(message.from, *group, message);
      return ok();
    case MessageType::kLate:
      if (group->parent() == process) {
        tell_late(*group, message);
      }
      return ok();
    case MessageType::kOver:
      if (group->parent() == process && group->opened.size() <= group->left.size()) {
        end_group(message.group, *group);
      }
      return ok();
    case MessageType::kPost:
      if (!group->layout->has(message.from) || map_->table.process_of(message.from) != process ||
          group->ranks.count(message.to) == 0) {
        return break_of_protocol("a control message that cannot be delivered");
      }
      if (group->left.count(message.to) == 0) {
        out_.deliver(message.to, message);
      }
      return ok();
    default:
      return break_of_protocol("a message that no agent sends");
  }
}

}  // namespace plexus
