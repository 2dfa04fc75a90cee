// SPDX-License-Identifier: Apache-2.0
// Agents: gathers, who is missing in them, and leaving groups, which is noted in the same way.
#include <algorithm>
#include <iterator>
#include <utility>

#include "core/bootstrap/agent.hpp"
#include "guest/assert.hpp"

namespace plexus {
namespace {

constexpr auto kInquiryTime = std::chrono::seconds(1);

}  // namespace

Result<void> Agent::take_contribution(uint32_t rank, const Message& message) {
  Group* const group = find(message.group);
  if (group == nullptr || group->ranks.count(rank) == 0 || message.payload.size() > kBlobBytesMax) {
    return break_of_protocol("a gather in a group that the rank is not in");
  }
  group->done[rank] = std::max(group->done[rank], message.tag + 1);
  if (group->failure.has_value()) {
    return ok();  // the rank has been told
  }
  if (group->gathers.size() > kGathersMax) {
    return break_of_protocol("too many gathers at once");
  }
  Gather& gather = group->gathers[message.tag];
  if (!gather.ranks.insert(rank).second) {
    return break_of_protocol("two contributions of a rank to a gather");
  }
  gather.contributions.add(rank, message.payload);
  progress(message.group, *group, message.tag);
  return ok();
}

Result<void> Agent::take_contributions(Group& group, uint32_t process, const Message& message) {
  if (group.failure.has_value()) {
    return ok();
  }
  const auto below = group.children();
  const bool is_below = std::find(below.begin(), below.end(), process) != below.end();
  if (!is_below || message.to != group.layout->fingerprint) {
    fail_for_disagreement(message.group, map_->table.ranks_of(process).front(),
                          *group.ranks.begin());
    return ok();
  }
  if (group.gathers.size() > kGathersMax) {
    return break_of_protocol("too many gathers at once");
  }
  Gather& gather = group.gathers[message.tag];
  std::vector<uint32_t> ranks;
  if (auto merged = gather.contributions.merge(message.payload, ranks); merged.has_error()) {
    if (gather.ranks.empty() && gather.processes.empty()) {
      group.gathers.erase(message.tag);  // nobody has contributed to it
    }
    return merged;
  }
  const bool is_right = gather.processes.insert(process).second && !ranks.empty() &&
                        gather.contributions.size() <= group.expected &&
                        std::all_of(ranks.begin(), ranks.end(), [&](uint32_t rank) {
                          return group.layout->has(rank) && group.ranks.count(rank) == 0;
                        });
  if (!is_right) {
    return break_of_protocol("contributions to a gather that are not its own");
  }
  progress(message.group, group, message.tag);
  return ok();
}

/// May end the group's life with a failure, but never erases it.
void Agent::progress(uint64_t id, Group& group, uint64_t number) {
  check_left(id, group);
  const auto at = group.gathers.find(number);
  if (group.failure.has_value() || at == group.gathers.end() ||
      at->second.contributions.size() < group.expected) {
    return;
  }
  const auto parent = group.parent();
  if (!parent.has_value()) {
    finish(id, group, number);
    return;
  }
  if (gone_.count(*parent) != 0) {
    suspect(group, *parent);
    return;
  }
  out_.send(*parent, {.type = MessageType::kGather,
                      .to = group.layout->fingerprint,
                      .group = id,
                      .tag = number,
                      .payload = at->second.contributions.encode()});
}

void Agent::finish(uint64_t id, Group& group, uint64_t number) {
  auto result = group.gathers.at(number).contributions.encode_result(group.layout->members);
  if (result.has_error()) {
    spread_failure(id, *group.ranks.begin(), result.error());
    return;
  }
  pass_down(id, group,
            {.type = MessageType::kGathered,
             .group = id,
             .tag = number,
             .payload = std::move(result).value()});
}

void Agent::pass_down(uint64_t id, Group& group, const Message& gathered) {
  PLEXUS_DCHECK(!group.failure.has_value() && group.gathers.count(gathered.tag) != 0, id,
                gathered.tag);
  group.gathers.erase(gathered.tag);
  for (const uint32_t child : group.children()) {
    out_.send(child, gathered);
  }
  if (id == world_) {
    table_ = {};  // everybody has it
  }
  for (const uint32_t rank : group.ranks) {
    out_.deliver(rank, gathered);
  }
}

Result<void> Agent::take_gathered(Group& group, uint32_t process, const Message& message) {
  const auto at = group.gathers.find(message.tag);
  if (group.parent() != process) {
    return break_of_protocol("the result of a gather from a process that is not the parent");
  }
  if (group.failure.has_value() || at == group.gathers.end() ||
      at->second.contributions.size() < group.expected) {
    return ok();
  }
  pass_down(message.group, group, message);
  return ok();
}

// ---- who is missing ----

/// Rank `asker` waits for gather `overdue.tag`: asks who is missing. With an error of kInProgress
/// all ranks are told and go on waiting, else the group fails.
void Agent::inquire(uint32_t asker, Group& group, const Message& overdue) {
  const uint64_t id = overdue.group;
  const uint64_t number = overdue.tag;
  const Error error = decode_error(overdue.payload);
  const auto at = group.gathers.find(number);
  const bool is_asked =
      group.inquiry.has_value() &&
      (group.inquiry->error.code() != Code::kInProgress || error.code() == Code::kInProgress);
  if (group.failure.has_value() || is_asked || at == group.gathers.end()) {
    return;
  }
  group.inquiry = Inquiry{};  // clang 14 does not find a constructor for emplace()
  Inquiry& inquiry = *group.inquiry;
  inquiry.gather = number;
  inquiry.until = now_ + kInquiryTime;
  inquiry.error = error.clone();
  inquiry.asker = asker;
  if (const auto parent = group.parent(); parent.has_value()) {
    out_.send(*parent, {.type = MessageType::kOverdue,
                        .from = asker,
                        .group = id,
                        .tag = number,
                        .payload = encode(error)});
    return;
  }
  ask_below(id, group, number, kNobody);
}

/// Reports the missing ranks of this process to `parent` (kNobody: this is the root) and asks those
/// below.
void Agent::ask_below(uint64_t id, Group& group, uint64_t number, uint32_t parent) {
  // None: no rank of this process or below has come to it. The question must not make one, to which
  // nobody has contributed.
  static const Gather kNone;
  const auto at = group.gathers.find(number);
  const Gather& gather = at == group.gathers.end() ? kNone : std::as_const(at->second);
  std::vector<uint32_t> missing;
  std::set_difference(group.ranks.begin(), group.ranks.end(), gather.ranks.begin(),
                      gather.ranks.end(), std::back_inserter(missing));
  if (parent == kNobody) {
    PLEXUS_DCHECK(group.inquiry.has_value() && !group.parent().has_value(), id, number);
    group.inquiry->missing = explain_missing(missing);
  } else if (!missing.empty()) {
    out_.send(parent, {.type = MessageType::kMissing,
                       .group = id,
                       .tag = number,
                       .payload = encode(explain_missing(missing))});
  }
  for (const uint32_t child : group.children()) {
    if (gather.processes.count(child) == 0) {
      out_.send(child, {.type = MessageType::kWho, .group = id, .tag = number});
    }
  }
}

void Agent::take_who(uint32_t process, const Message& message) {
  Group* const group = find(message.group);
  if (group == nullptr) {  // none of this process's ranks has opened it
    out_.send(process, {.type = MessageType::kMissing,
                        .group = message.group,
                        .tag = message.tag,
                        .payload = encode(explain_missing({ranks_.begin(), ranks_.end()}))});
  } else if (group->parent() == process) {
    ask_below(message.group, *group, message.tag, process);
  } else {
    fail_for_disagreement(message.group, map_->table.ranks_of(process).front(),
                          *group->ranks.begin());
  }
}

Result<void> Agent::take_missing(Group& group, const Message& message) {
  PLEXUS_TRY(ranks, decode_missing(message.payload));
  std::erase_if(ranks, [&](const MissingRank& one) { return !group.layout->has(one.rank); });
  if (ranks.size() > kNamesMax) {
    ranks.resize(kNamesMax);
  }
  if (const auto parent = group.parent(); parent.has_value()) {
    if (!ranks.empty()) {
      out_.send(*parent, {.type = MessageType::kMissing,
                          .group = message.group,
                          .tag = message.tag,
                          .payload = encode(ranks)});
    }
  } else if (group.inquiry.has_value() && group.inquiry->missing.size() < kNamesMax) {
    group.inquiry->missing.insert(group.inquiry->missing.end(), ranks.begin(), ranks.end());
  }
  return ok();
}

void Agent::conclude(uint64_t id, Group& group) {
  Inquiry& inquiry = *group.inquiry;
  const auto at = group.gathers.find(inquiry.gather);
  if (group.failure.has_value() || at == group.gathers.end()) {
    group.inquiry.reset();
    return;
  }
  std::string missing;
  std::string told = std::to_string(inquiry.gather);
  for (const MissingRank& one : inquiry.missing) {
    told += fmt::format(" {}", one.rank);
    missing += (missing.empty() ? "" : ", ") + name_of(one.rank);
    missing += one.why.empty() ? "" : fmt::format(" [{}]", one.why);
  }
  for (const uint32_t child : group.children()) {
    if (missing.empty() && at->second.processes.count(child) == 0) {
      missing = fmt::format("{}, whose process does not answer",
                            name_of(map_->table.ranks_of(child).front()));
    }
  }
  const std::string sentence =
      fmt::format("still waiting for {}: {}", missing, inquiry.error.message());
  if (inquiry.error.code() == Code::kInProgress) {
    const uint32_t asker = std::exchange(group.told, told) == told ? kNobody : inquiry.asker;
    group.inquiry.reset();
    tell_late(group, {.type = MessageType::kLate, .from = asker, .group = id, .payload = sentence});
    return;
  }
  spread_failure(id, *group.ranks.begin(), fail(Code::kTimeout, "{}", sentence));
}

/// To one rank of each process, which logs it: the asker in its process.
void Agent::tell_late(const Group& group, const Message& late) {
  for (const uint32_t child : group.children()) {
    if (!is_gone(child)) {
      out_.send(child, late);
    }
  }
  if (group.opened.count(late.from) != 0 && group.left.count(late.from) == 0) {
    out_.deliver(late.from, late);
    return;
  }
  for (const uint32_t rank : group.opened) {
    if (group.left.count(rank) == 0) {
      out_.deliver(rank, late);
      return;
    }
  }
}

std::vector<MissingRank> Agent::explain_missing(const std::vector<uint32_t>& ranks) const {
  const std::string why = out_.hooks.explain();
  std::vector<MissingRank> missing;
  for (const uint32_t rank : ranks) {
    missing.push_back({.rank = rank, .why = why});
  }
  return missing;
}

// ---- leaving ----

Result<void> Agent::take_leave_group(uint32_t rank, Message message) {
  Group* const group = find(message.group);
  if (group == nullptr || group->ranks.count(rank) == 0 || message.payload.size() > kBlobBytesMax) {
    return break_of_protocol("a rank leaves a group that it is not in");
  }
  note(message.group, *group,
       {.rank = rank,
        .gathers = group->failure.has_value() ? LeaveNote::kAfterFailure : group->done[rank],
        .record = std::move(message.payload)});
  out_.deliver(rank, {.type = MessageType::kLeaveGroup, .group = message.group});
  check_left(message.group, *group);
  progress_leaving(message.group, *group);
  return ok();
}

/// Notes come from below, and from processes whose parents are not there.
Result<void> Agent::take_notes(Group& group, const Message& message) {
  PLEXUS_TRY(notes, decode_leave_notes(message.payload));
  group.is_compared |= message.tag != 0;
  for (LeaveNote& one : notes) {
    if (!group.layout->has(one.rank)) {
      return break_of_protocol("a leave note of a rank that is not in the group");
    }
    if (group.ranks.count(one.rank) != 0) {
      continue;  // it comes back from a process that has left
    }
    note(message.group, group, std::move(one));
  }
  if (is_over_) {
    return ok();  // it has said goodbye
  }
  group.notes_at.reset();
  check_left(message.group, group);
  progress_leaving(message.group, group);
  return ok();
}

void Agent::note(uint64_t id, Group& group, LeaveNote note) {
  const uint32_t rank = note.rank;
  if (!group.left.insert_or_assign(rank, std::move(note)).second) {
    return;
  }
  group.left_below += is_below(group, rank) ? 1 : 0;
  PLEXUS_DCHECK(group.left_below <= group.expected && group.left_below <= group.left.size(),
                group.left_below, group.expected, group.left.size());
  compare_left(id, group, rank);
}

/// Whether it is a rank of this process, or of one below it in the group's tree.
bool Agent::is_below(const Group& group, uint32_t rank) const {
  const ControlTree& tree = group.layout->tree;
  auto at = tree.position_of(map_->table.process_of(rank));
  while (at.has_value() && *at > group.position) {
    at = tree.parent(*at);
  }
  return at == group.position;
}

/// Fails the group if a gather waits for a rank that has left in order, since it could never end.
/// One that has left after a failure may be heard of before the failure is.
void Agent::check_left(uint64_t id, Group& group) {
  if (group.left.empty() || group.failure.has_value()) {
    return;
  }
  for (const auto& [number, gather] : group.gathers) {
    PLEXUS_DCHECK(!gather.ranks.empty() || !gather.processes.empty(), id, number);
    for (const auto& [gone, note] : group.left) {
      if (note.gathers <= number) {
        const uint32_t caller = gather.ranks.empty()
                                    ? map_->table.ranks_of(*gather.processes.begin()).front()
                                    : *gather.ranks.begin();
        spread_failure(
            id, gone,
            fail(Code::kInvalidUsage,
                 "{} has destroyed a communicator in which {} calls init, split or shrink: every "
                 "rank must make the same calls before it destroys the communicator",
                 name_of(gone), name_of(caller)));
        return;
      }
    }
  }
}

/// Has the record of `rank`, which is here now, compared with that of another rank, or those of all
/// once they are here. When many leave at once no process may get those of all.
void Agent::compare_left(uint64_t id, Group& group, uint32_t rank) {
  const std::vector<uint32_t>& members = group.layout->members;
  if (group.is_compared || group.failure.has_value() || group.left.size() < 2) {
    return;
  }
  const bool has_all = group.left.size() == members.size();
  const auto& first = *group.left.begin();
  const auto& other = first.first == rank ? *std::next(group.left.begin()) : first;
  AgentHooks::Records records;
  for (size_t i = 0; i < members.size(); ++i) {
    if (has_all || members[i] == rank || members[i] == other.first) {
      records.emplace(static_cast<int>(i), group.left.at(members[i]).record);
    }
  }
  group.is_compared = out_.hooks.compare(id, members.size(), records);
}

/// May erase the group.
void Agent::progress_leaving(uint64_t id, Group& group) {
  if (group.notes_at.has_value()) {
    return;
  }
  size_t covered = group.left_below;
  for (const uint32_t dead : dead_) {
    if (dead == self_) {
      continue;  // taken for dead by others: its ranks are here, and leave
    }
    for (const uint32_t rank : map_->table.ranks_of(dead)) {
      const bool counts = group.layout->has(rank) && group.left.count(rank) == 0;
      covered += counts && is_below(group, rank) ? 1 : 0;
    }
  }
  PLEXUS_DCHECK(covered <= group.expected, id, covered, group.expected);
  if (covered < group.expected) {
    return;
  }
  const auto above = stand_in(group.layout->tree, group.position);
  if (!above.has_value()) {
    if (is_left_by_all(group)) {
      end_group(id, group);
    }
    return;
  }
  PLEXUS_DCHECK(*above != self_, id, *above);
  group.notes_at = above;
  send_notes(id, group, *above);
}

/// Where the root has left, not only those below have to.
bool Agent::is_left_by_all(const Group& group) const {
  return std::all_of(group.layout->members.begin(), group.layout->members.end(),
                     [&](uint32_t rank) {
                       const uint32_t process = map_->table.process_of(rank);
                       return group.left.count(rank) != 0 || (process != self_ && is_gone(process));
                     });
}

void Agent::send_notes(uint64_t id, const Group& group, uint32_t process) {
  std::vector<LeaveNote> notes;
  for (const auto& [rank, note] : group.left) {
    notes.push_back(note);
  }
  out_.send(process, {.type = MessageType::kLeaveGroup,
                      .group = id,
                      .tag = group.is_compared ? 1U : 0U,
                      .payload = encode(notes)});
}

/// All members have left.
void Agent::end_group(uint64_t id, Group& group) {
  for (const uint32_t child : group.children()) {
    if (!is_gone(child)) {
      out_.send(child, {.type = MessageType::kOver, .group = id});
    }
  }
  std::erase_if(seeks_, [&](const auto& seek) { return seek.first.first == id; });
  news_.erase({News::Kind::kFailure, 0, id});
  groups_.erase(id);
}

void Agent::leave(uint32_t rank) {
  const size_t erased = present_.erase(rank);
  PLEXUS_DCHECK(erased == 1 && !is_over_, rank, erased);
  if (!present_.empty()) {
    return;
  }
  is_over_ = true;
  for (const auto& [id, group] : groups_) {
    const auto heir = heir_of(group);
    if (!group.left.empty() && !group.notes_at.has_value() && heir.has_value()) {
      send_notes(id, group, *heir);
    }
  }
  out_.say_goodbye({.type = MessageType::kLeave, .group = world_, .payload = encode(all_news())});
}

/// The process that is to be told in place of the parent of `position`: the nearest ancestor that
/// is there, else the first process that is; nullopt: that is this one.
std::optional<uint32_t> Agent::stand_in(const ControlTree& tree, uint32_t position) const {
  for (auto at = tree.parent(position); at.has_value(); at = tree.parent(*at)) {
    if (!is_gone(tree.process_at(*at))) {
      return tree.process_at(*at);
    }
  }
  for (uint32_t at = 0; at < position; ++at) {
    if (!is_gone(tree.process_at(at))) {
      return tree.process_at(at);
    }
  }
  return std::nullopt;
}

/// Who keeps the leave notes when this process leaves.
std::optional<uint32_t> Agent::heir_of(const Group& group) const {
  const ControlTree& tree = group.layout->tree;
  auto heir = stand_in(tree, group.position);
  for (uint32_t at = group.position + 1; at < tree.size() && !heir.has_value(); ++at) {
    if (!is_gone(tree.process_at(at))) {
      heir = tree.process_at(at);
    }
  }
  PLEXUS_DCHECK(heir != self_, self_);
  return heir;
}

}  // namespace plexus
