// SPDX-License-Identifier: Apache-2.0
// Agents: news of deaths and failures, and the tree over all processes that carries it.
#include <algorithm>

#include "core/bootstrap/agent.hpp"
#include "guest/assert.hpp"

namespace plexus {
namespace {

// News of a death may be under way, or the last messages of a process that has left: it waits for
// 10 s until the network has delivered them (agent_host.cpp).
constexpr auto kSuspicionTime = std::chrono::seconds(1);
constexpr auto kFarewellTime = std::chrono::seconds(12);
constexpr auto kLookPause = std::chrono::seconds(1);

}  // namespace

std::string Agent::name_of(uint32_t rank) const { return map_->table.name_of(rank); }

std::vector<News> Agent::all_news() const {
  std::vector<News> all;
  for (const auto& [key, news] : news_) {
    all.push_back(news);
  }
  return all;
}

void Agent::spread(News news, std::optional<uint32_t> source, uint32_t spared) {
  if (!news_.emplace(news.key(), news).second) {
    return;
  }
  std::set<uint32_t> neighbours = children_;
  if (parent_.has_value()) {
    neighbours.insert(*parent_);
  }
  apply(news, spared);
  const Message message{
      .type = MessageType::kNews, .group = world_, .payload = encode(std::vector{news})};
  for (const uint32_t neighbour : neighbours) {
    if (neighbour != source && !is_gone(neighbour)) {
      out_.send(neighbour, message);
    }
  }
}

/// The group fails on all its ranks but `spared`. `rank`: whose failure it is.
void Agent::spread_failure(uint64_t id, uint32_t rank, const Error& error, uint32_t spared) {
  spread({.kind = News::Kind::kFailure,
          .subject = rank,
          .group = id,
          .code = error.code(),
          .text = error.message()},
         std::nullopt, spared);
}

void Agent::apply(const News& news, uint32_t spared) {
  if (news.kind == News::Kind::kFailure) {
    if (Group* const group = find(news.group); group != nullptr) {
      fail_group(news.group, *group, spared, fail(news.code, "{}", news.text),
                 FailureCause::kFailed);
    }
    return;
  }
  if (news.kind == News::Kind::kGone) {
    return;  // see gone_ranks()
  }
  dead_.insert(news.subject);
  children_.erase(news.subject);
  if (!table_.empty()) {
    adopt_children_of(news.subject);
  }
  if (parent_ == news.subject) {
    attach();
  }
  for (auto& [id, group] : groups_) {
    fail_with_dead(id, group);
  }
  take_back_notes(news.subject);
}

/// Leave notes that went to a process that is gone go to another one.
void Agent::take_back_notes(uint32_t process) {
  for (auto& [id, group] : groups_) {
    if (group.notes_at == process) {
      group.notes_at.reset();
    }
  }
  for (const uint64_t id : group_ids()) {
    if (Group* const group = find(id); group != nullptr) {
      progress_leaving(id, *group);
    }
  }
}

/// The children of a process that died before it could pass on the table.
void Agent::adopt_children_of(uint32_t process) {
  const auto above = stand_in(map_->all->tree, process);
  if (above.has_value() ? *above != self_ : process < self_) {
    return;
  }
  for (const uint32_t child : map_->all->tree.children(process)) {
    if (child == self_) {
      continue;
    }
    if (is_gone(child)) {
      adopt_children_of(child);
      continue;
    }
    PLEXUS_DCHECK(child > self_, child, self_);
    children_.insert(child);
    out_.send(child, {.type = MessageType::kTable, .group = world_, .payload = table_});
    out_.send(child, {.type = MessageType::kNews, .group = world_, .payload = encode(all_news())});
  }
}

/// Finds a parent for this process after its own has gone.
void Agent::attach() {
  parent_ = stand_in(map_->all->tree, self_);
  PLEXUS_DCHECK(!parent_.has_value() || *parent_ < self_, self_);
  if (parent_.has_value() && !is_over_) {
    out_.send(*parent_,
              {.type = MessageType::kAttach, .group = world_, .payload = encode(all_news())});
  }
}

Result<void> Agent::take_attach(uint32_t process, const Message& message) {
  PLEXUS_TRY(news, decode_news(message.payload));
  if (process < self_) {
    return break_of_protocol("a process attached to one below it");
  }
  children_.insert(process);
  std::vector<News> missing = all_news();
  std::erase_if(missing, [&](const News& mine) {
    return std::any_of(news.begin(), news.end(),
                       [&](const News& theirs) { return theirs.key() == mine.key(); });
  });
  if (!missing.empty()) {
    out_.send(process, {.type = MessageType::kNews, .group = world_, .payload = encode(missing)});
  }
  return take_news(process, message);
}

Result<void> Agent::take_news(uint32_t process, const Message& message) {
  PLEXUS_TRY(news, decode_news(message.payload));
  for (News& one : news) {
    if (one.kind != News::Kind::kFailure && one.subject >= map_->table.nprocesses()) {
      return break_of_protocol("the death of a process that is not there");
    }
    spread(std::move(one), process, kNobody);
  }
  return ok();
}

void Agent::fail_group(
    uint64_t id, Group& group, uint32_t spared, const Error& error, FailureCause cause) {
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
    if (rank != spared && group.left.count(rank) == 0) {
      tell_failure(id, rank, error, cause);
    }
  }
}

void Agent::tell_failure(uint64_t id, uint32_t rank, const Error& error, FailureCause cause) const {
  out_.deliver(rank, {.type = MessageType::kFail,
                      .group = id,
                      .tag = static_cast<uint64_t>(cause),
                      .payload = encode(error)});
}

void Agent::fail_with_dead(uint64_t id, Group& group) {
  for (const uint32_t dead : dead_) {
    for (const uint32_t rank : map_->table.ranks_of(dead)) {
      if (group.layout->has(rank) && group.left.count(rank) == 0) {
        const auto news = news_.find({News::Kind::kDeath, dead, 0});
        fail_group(id, group, kNobody,
                   fail(Code::kRemoteError, "{}{} {}",
                        dead == self_ ? "the others took this process for dead: " : "",
                        name_of(rank), news == news_.end() ? "died" : news->second.text),
                   FailureCause::kDeath);
        return;
      }
    }
  }
}

std::vector<uint32_t> Agent::gone_ranks(uint64_t id) const {
  std::vector<uint32_t> gone;
  const auto group = groups_.find(id);
  if (group == groups_.end()) {
    return gone;
  }
  for (const uint32_t rank : group->second.layout->members) {
    const uint32_t process = map_->table.process_of(rank);
    if (is_gone(process) || news_.count({News::Kind::kGone, process, 0}) != 0) {
      gone.push_back(rank);
    }
  }
  return gone;
}

void Agent::break_down(uint32_t rank, const Error& error) {
  fail_world(error);
  for (const uint64_t id : group_ids()) {
    spread_failure(id, rank,
                   fail(Code::kRemoteError, "{} failed: {}", name_of(rank), error.message()));
  }
}

void Agent::lose(uint32_t process, Loss how, std::string_view why) {
  if (map_ == nullptr || process == self_ || is_over_ || is_gone(process)) {
    return;
  }
  if (how == Loss::kBroken || children_.count(process) != 0) {
    // Of a connection that is lost, either end may be the culprit, so the text names both. A child
    // that refuses one may have left in order, and told a parent that has died since.
    const uint32_t mine = *ranks_.begin();
    spread({.kind = News::Kind::kDeath,
            .subject = process,
            .group = 0,
            .text = how == Loss::kBroken
                        ? fmt::format("died or lost its connection to {}", name_of(mine))
                        : fmt::format("has left or died, or cannot be reached by {}: {}",
                                      name_of(mine), why)},
           std::nullopt, kNobody);
    return;
  }
  miss(process, kSuspicionTime);
}

void Agent::take_goodbye(uint32_t process) { miss(process, kFarewellTime); }

/// It has left, or is not there.
void Agent::miss(uint32_t process, Clock::duration time) {
  gone_.insert_or_assign(process, now_ + time);
  children_.erase(process);
  if (parent_ == process) {
    attach();
  }
  for (auto& [id, group] : groups_) {
    if (group.parent() == process && group.waits_for(process)) {
      suspect(group, process);
    }
  }
  take_back_notes(process);
}

void Agent::suspect(Group& group, uint32_t process) const {
  PLEXUS_DCHECK(process != self_ && !group.failure.has_value(), process);
  if (!group.suspect.has_value()) {
    group.suspect = std::pair(process, std::max(now_ + kSuspicionTime, gone_.at(process)));
  }
}

/// All have joined, but those that were to pass on the table have died or are stopped: the
/// introducer has it too.
void Agent::look_for_table(Clock::time_point now) {
  if (map_ != nullptr || !have_all_joined_ || present_.empty()) {
    return;
  }
  table_due_ = table_due_.value_or(now + kTableTime);
  if (now < *table_due_) {
    return;
  }
  table_due_ = now + kTableTime;
  if (lost_introducer_.empty()) {
    out_.to_introducer({.type = MessageType::kTable, .tag = process_id_});
    return;
  }
  fail_world(fail(Code::kRemoteError,
                  "the process that made the unique id ({}) and those that were to pass on the "
                  "table of processes died or lost their connections while the ranks joined",
                  lost_introducer_));
}

/// A process that dies while it has no parent is missed by nobody but those who need it. They look
/// from time to time whether it is there.
void Agent::look_for_missing(Group& group) {
  const auto parent = group.parent();
  if (parent.has_value() && gone_.count(*parent) != 0 && group.waits_for(*parent)) {
    suspect(group, *parent);
  }
  for (const auto& [number, gather] : group.gathers) {
    for (const uint32_t child : group.children()) {
      if (gather.processes.count(child) != 0) {
        continue;
      }
      if (gone_.count(child) != 0) {
        suspect(group, child);
      } else {
        out_.send(child, {.type = MessageType::kNews, .group = world_});
      }
    }
  }
}

void Agent::tick(Clock::time_point now) {
  now_ = now;
  look_for_table(now);
  const bool looks = map_ != nullptr && now >= next_look_;
  if (looks) {
    next_look_ = now + kLookPause;
  }
  std::vector<uint64_t> ids;
  for (auto& [id, group] : groups_) {
    if (looks && !group.gathers.empty()) {
      look_for_missing(group);
    }
    if (group.inquiry.has_value() || group.suspect.has_value()) {
      ids.push_back(id);
    }
  }
  for (const uint64_t id : ids) {
    Group& group = groups_.at(id);
    if (group.suspect.has_value() && !group.waits_for(group.suspect->first)) {
      group.suspect.reset();  // its goodbye came over another connection, before its last message
    }
    if (group.inquiry.has_value() && now >= group.inquiry->until) {
      if (!group.parent().has_value()) {
        conclude(id, group);
      } else if (group.inquiry->error.code() == Code::kInProgress) {
        group.inquiry.reset();  // the root has heard of it, and may be asked again later
      }
    }
    if (group.suspect.has_value() && now >= group.suspect->second) {
      const auto ranks = map_->table.ranks_of(group.suspect->first);
      const auto member = std::find_if(ranks.begin(), ranks.end(),
                                       [&](uint32_t rank) { return group.layout->has(rank); });
      PLEXUS_DCHECK(member != ranks.end(), id, group.suspect->first);  // needed: it is in the tree
      const uint32_t mine = *group.ranks.begin();
      spread({.kind = News::Kind::kGone, .subject = group.suspect->first}, std::nullopt, kNobody);
      spread_failure(id, mine,
                     fail(Code::kRemoteError,
                          "{} has left or died: its process does not listen any more, and {} calls "
                          "init, split or shrink",
                          name_of(*member), name_of(mine)));
    }
  }
}

}  // namespace plexus
