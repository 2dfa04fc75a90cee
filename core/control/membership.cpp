// SPDX-License-Identifier: Apache-2.0
#include "core/control/membership.hpp"

#include <algorithm>

#include "guest/assert.hpp"

namespace plexus {
namespace {

// The last messages of a process that has left may be under way: it waits for 10 s until the
// network has delivered them (agent_host.cpp).
constexpr auto kFarewellTime = std::chrono::seconds(12);

}  // namespace

void Membership::open(const AgentGroup& world) {
  PLEXUS_DCHECK(parent_ == std::nullopt && children_.empty(), children_.size());
  parent_ = world.parent();
  const auto below = world.children();
  children_ = {below.begin(), below.end()};
  PLEXUS_DCHECK(
      parent_.value_or(0) <= state_.self && (children_.empty() || *children_.begin() > state_.self),
      state_.self);
}

void Membership::take_adoption(uint32_t process) {
  if (!is_neighbour(process) && process < state_.self) {
    state_.gone.erase(process);
    parent_ = process;
  }
}

std::vector<FailureNotice> Membership::all_notices() const {
  std::vector<FailureNotice> all;
  for (const auto& [key, notice] : state_.notices) {
    all.push_back(notice);
  }
  return all;
}

void Membership::broadcast(FailureNotice notice,
                           std::optional<uint32_t> source,
                           uint32_t informed) {
  if (!state_.notices.emplace(notice.key(), notice).second) {
    return;
  }
  std::set<uint32_t> neighbours = children_;
  if (parent_.has_value()) {
    neighbours.insert(*parent_);
  }
  apply(notice, informed);
  const Message message{.type = MessageType::kFailureNotice,
                        .group = state_.world,
                        .payload = encode(std::vector{notice})};
  for (const uint32_t neighbour : neighbours) {
    if (neighbour != source && !state_.is_gone(neighbour)) {
      state_.out.send(neighbour, message);
    }
  }
}

/// The group fails on all its ranks but `informed`. `rank`: whose failure it is.
void Membership::fail_everywhere(uint64_t id,
                                 uint32_t rank,
                                 const Error& error,
                                 uint32_t informed) {
  broadcast({.kind = FailureNotice::Kind::kFailure,
             .subject = rank,
             .group = id,
             .code = error.code(),
             .text = error.message()},
            std::nullopt, informed);
}

void Membership::apply(const FailureNotice& notice, uint32_t informed) {
  if (notice.kind == FailureNotice::Kind::kFailure) {
    if (AgentGroup* const group = state_.find(notice.group); group != nullptr) {
      fail_group(notice.group, *group, informed, fail(notice.code, "{}", notice.text),
                 FailureCause::kFailed);
    }
    return;
  }
  if (notice.kind == FailureNotice::Kind::kGone) {
    return;  // see gone_ranks()
  }
  state_.dead.insert(notice.subject);
  children_.erase(notice.subject);
  if (!state_.table.empty()) {
    adopt_children_of(notice.subject);
  }
  if (parent_ == notice.subject) {
    attach();
  }
  for (auto& [id, group] : state_.groups) {
    fail_with_dead(id, group);
  }
  leaving_.take_back_notes(notice.subject);
}

/// The children of a process that died before it could pass on the table.
void Membership::adopt_children_of(uint32_t process) {
  const auto above = state_.next_alive(state_.map->all->tree, process);
  if (above.has_value() ? *above != state_.self : process < state_.self) {
    return;
  }
  for (const uint32_t child : state_.map->all->tree.children(process)) {
    if (child == state_.self) {
      continue;
    }
    if (state_.is_gone(child)) {
      adopt_children_of(child);
      continue;
    }
    PLEXUS_DCHECK(child > state_.self, child, state_.self);
    children_.insert(child);
    state_.out.send(child,
                    {.type = MessageType::kTable, .group = state_.world, .payload = state_.table});
    state_.out.send(child, {.type = MessageType::kFailureNotice,
                            .group = state_.world,
                            .payload = encode(all_notices())});
  }
}

/// Finds a parent for this process after its own has gone.
void Membership::attach() {
  parent_ = state_.next_alive(state_.map->all->tree, state_.self);
  PLEXUS_DCHECK(!parent_.has_value() || *parent_ < state_.self, state_.self);
  if (parent_.has_value() && !state_.is_over) {
    state_.out.send(
        *parent_,
        {.type = MessageType::kAttach, .group = state_.world, .payload = encode(all_notices())});
  }
}

Result<void> Membership::take_attach(uint32_t process, const Message& message) {
  PLEXUS_TRY(notices, decode_failure_notices(message.payload));
  if (process < state_.self) {
    return break_of_protocol("a process attached to one below it");
  }
  children_.insert(process);
  std::vector<FailureNotice> missing = all_notices();
  std::erase_if(missing, [&](const FailureNotice& mine) {
    return std::any_of(notices.begin(), notices.end(),
                       [&](const FailureNotice& theirs) { return theirs.key() == mine.key(); });
  });
  if (!missing.empty()) {
    state_.out.send(
        process,
        {.type = MessageType::kFailureNotice, .group = state_.world, .payload = encode(missing)});
  }
  return take_notices(process, message);
}

Result<void> Membership::take_notices(uint32_t process, const Message& message) {
  PLEXUS_TRY(notices, decode_failure_notices(message.payload));
  for (FailureNotice& one : notices) {
    if (one.kind != FailureNotice::Kind::kFailure &&
        one.subject >= state_.map->table.nprocesses()) {
      return break_of_protocol("the death of a process that is not there");
    }
    broadcast(std::move(one), process, kNobody);
  }
  return ok();
}

void Membership::fail_group(
    uint64_t id, AgentGroup& group, uint32_t informed, const Error& error, FailureCause cause) {
  if (group.failure.has_value() && is_final(group.cause, cause)) {
    return;
  }
  if (!group.failure.has_value()) {
    group.failure = error.clone();
  }
  group.cause = cause;
  group.gathers.clear();
  group.inquiry.reset();
  group.suspect.reset();
  for (const uint32_t rank : group.opened) {
    if (rank != informed && group.left.count(rank) == 0) {
      tell_failure(id, rank, error, cause);
    }
  }
}

void Membership::tell_failure(uint64_t id,
                              uint32_t rank,
                              const Error& error,
                              FailureCause cause) const {
  state_.out.deliver(rank, {.type = MessageType::kFail,
                            .group = id,
                            .tag = static_cast<uint64_t>(cause),
                            .payload = encode(error)});
}

void Membership::fail_with_dead(uint64_t id, AgentGroup& group) {
  for (const uint32_t dead : state_.dead) {
    for (const uint32_t rank : state_.map->table.ranks_of(dead)) {
      if (group.layout->has(rank) && group.left.count(rank) == 0) {
        const auto notice = state_.notices.find({FailureNotice::Kind::kDeath, dead, 0});
        fail_group(id, group, kNobody,
                   fail(Code::kRemoteError, "{}{} {}",
                        dead == state_.self ? "the others took this process for dead: " : "",
                        state_.name_of(rank),
                        notice == state_.notices.end() ? "died" : notice->second.text),
                   FailureCause::kDeath);
        return;
      }
    }
  }
}

std::vector<uint32_t> Membership::gone_ranks(uint64_t id) const {
  std::vector<uint32_t> gone;
  const auto group = state_.groups.find(id);
  if (group == state_.groups.end()) {
    return gone;
  }
  for (const uint32_t rank : group->second.layout->members) {
    const uint32_t process = state_.map->table.process_of(rank);
    if (state_.is_gone(process) ||
        state_.notices.count({FailureNotice::Kind::kGone, process, 0}) != 0) {
      gone.push_back(rank);
    }
  }
  return gone;
}

void Membership::lose(uint32_t process, ProcessLoss how, std::string_view why) {
  if (state_.map == nullptr || process == state_.self || state_.is_over ||
      state_.is_gone(process)) {
    return;
  }
  if (how == ProcessLoss::kBroken || children_.count(process) != 0) {
    // Either end of a lost connection may be the culprit, so the text names both. A child
    // that refuses one may have left in order, and told a parent that has died since.
    const uint32_t mine = *state_.ranks.begin();
    broadcast({.kind = FailureNotice::Kind::kDeath,
               .subject = process,
               .group = 0,
               .text = how == ProcessLoss::kBroken
                           ? fmt::format("died or lost its connection to {}", state_.name_of(mine))
                           : fmt::format("has left or died, or cannot be reached by {}: {}",
                                         state_.name_of(mine), why)},
              std::nullopt, kNobody);
    return;
  }
  miss(process, kSuspicionTime);
}

void Membership::take_leave(uint32_t process) { miss(process, kFarewellTime); }

/// It has left, or is not there.
void Membership::miss(uint32_t process, Clock::duration time) {
  state_.gone.insert_or_assign(process, state_.now + time);
  children_.erase(process);
  if (parent_ == process) {
    attach();
  }
  for (auto& [id, group] : state_.groups) {
    if (group.parent() == process && group.waits_for(process)) {
      state_.suspect(group, process);
    }
  }
  leaving_.take_back_notes(process);
}

/// A process that dies while it has no parent is missed by nobody but those who need it. They look
/// from time to time whether it is there.
void Membership::look_for_missing(AgentGroup& group) {
  const auto parent = group.parent();
  if (parent.has_value() && state_.gone.count(*parent) != 0 && group.waits_for(*parent)) {
    state_.suspect(group, *parent);
  }
  for (const auto& [number, gather] : group.gathers) {
    for (const uint32_t child : group.children()) {
      if (gather.processes.count(child) != 0) {
        continue;
      }
      if (state_.gone.count(child) != 0) {
        state_.suspect(group, child);
      } else {
        state_.out.send(child, {.type = MessageType::kFailureNotice, .group = state_.world});
      }
    }
  }
}

void Membership::give_up_suspect(uint64_t id, const AgentGroup& group) {
  const auto ranks = state_.map->table.ranks_of(group.suspect->first);
  const auto member = std::find_if(ranks.begin(), ranks.end(),
                                   [&](uint32_t rank) { return group.layout->has(rank); });
  PLEXUS_DCHECK(member != ranks.end(), id, group.suspect->first);  // needed: it is in the tree
  const uint32_t mine = *group.ranks.begin();
  broadcast({.kind = FailureNotice::Kind::kGone, .subject = group.suspect->first}, std::nullopt,
            kNobody);
  fail_everywhere(id, mine,
                  fail(Code::kRemoteError,
                       "{} has left or died: its process does not listen any more, and {} calls "
                       "init, split or shrink",
                       state_.name_of(*member), state_.name_of(mine)));
}

}  // namespace plexus
