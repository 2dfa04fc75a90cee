// SPDX-License-Identifier: Apache-2.0
#include "core/control/gathers.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

#include "guest/assert.hpp"

namespace plexus {
namespace {

constexpr auto kInquiryTime = std::chrono::seconds(1);

}  // namespace

Result<void> Gathers::take_contribution(uint32_t rank, const Message& message) {
  AgentGroup* const group = state_.find(message.group);
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

Result<void> Gathers::take_contributions(AgentGroup& group,
                                         uint32_t process,
                                         const Message& message) {
  if (group.failure.has_value()) {
    return ok();
  }
  const auto below = group.children();
  const bool is_below = std::find(below.begin(), below.end(), process) != below.end();
  if (!is_below || message.to != group.layout->fingerprint) {
    fail_for_disagreement(message.group, state_.map->table.ranks_of(process).front(),
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
void Gathers::progress(uint64_t id, AgentGroup& group, uint64_t number) {
  leaving_.check(id, group);
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
  if (state_.gone.count(*parent) != 0) {
    state_.suspect(group, *parent);
    return;
  }
  state_.out.send(*parent, {.type = MessageType::kGather,
                            .to = group.layout->fingerprint,
                            .group = id,
                            .tag = number,
                            .payload = at->second.contributions.encode()});
}

void Gathers::finish(uint64_t id, AgentGroup& group, uint64_t number) {
  auto result = group.gathers.at(number).contributions.encode_result(group.layout->members);
  if (result.has_error()) {
    fail_(id, *group.ranks.begin(), result.error());
    return;
  }
  pass_down(id, group,
            {.type = MessageType::kGathered,
             .group = id,
             .tag = number,
             .payload = std::move(result).value()});
}

void Gathers::pass_down(uint64_t id, AgentGroup& group, const Message& gathered) {
  PLEXUS_DCHECK(!group.failure.has_value() && group.gathers.count(gathered.tag) != 0, id,
                gathered.tag);
  group.gathers.erase(gathered.tag);
  for (const uint32_t child : group.children()) {
    state_.out.send(child, gathered);
  }
  if (id == state_.world) {
    state_.table = {};  // everybody has it
  }
  for (const uint32_t rank : group.ranks) {
    state_.out.deliver(rank, gathered);
  }
}

Result<void> Gathers::take_gathered(AgentGroup& group, uint32_t process, const Message& message) {
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

/// Rank `asker` waits for gather `overdue.tag`: asks who is missing. With an error of kInProgress
/// all ranks are told and go on waiting, else the group fails.
void Gathers::inquire(uint32_t asker, AgentGroup& group, const Message& overdue) {
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
  group.inquiry = GatherInquiry{};  // clang 14 does not find a constructor for emplace()
  GatherInquiry& inquiry = *group.inquiry;
  inquiry.gather = number;
  inquiry.until = state_.now + kInquiryTime;
  inquiry.error = error.clone();
  inquiry.asker = asker;
  if (const auto parent = group.parent(); parent.has_value()) {
    state_.out.send(*parent, {.type = MessageType::kOverdue,
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
void Gathers::ask_below(uint64_t id, AgentGroup& group, uint64_t number, uint32_t parent) {
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
    state_.out.send(parent, {.type = MessageType::kMissing,
                             .group = id,
                             .tag = number,
                             .payload = encode(explain_missing(missing))});
  }
  for (const uint32_t child : group.children()) {
    if (gather.processes.count(child) == 0) {
      state_.out.send(child, {.type = MessageType::kMissingQuery, .group = id, .tag = number});
    }
  }
}

void Gathers::take_missing_query(uint32_t process, const Message& message) {
  AgentGroup* const group = state_.find(message.group);
  if (group == nullptr) {  // none of this process's ranks has opened it
    state_.out.send(
        process, {.type = MessageType::kMissing,
                  .group = message.group,
                  .tag = message.tag,
                  .payload = encode(explain_missing({state_.ranks.begin(), state_.ranks.end()}))});
  } else if (group->parent() == process) {
    ask_below(message.group, *group, message.tag, process);
  } else {
    fail_for_disagreement(message.group, state_.map->table.ranks_of(process).front(),
                          *group->ranks.begin());
  }
}

Result<void> Gathers::take_missing(AgentGroup& group, const Message& message) {
  PLEXUS_TRY(ranks, decode_missing(message.payload));
  std::erase_if(ranks, [&](const MissingRank& one) { return !group.layout->has(one.rank); });
  if (ranks.size() > kNamesMax) {
    ranks.resize(kNamesMax);
  }
  if (const auto parent = group.parent(); parent.has_value()) {
    if (!ranks.empty()) {
      state_.out.send(*parent, {.type = MessageType::kMissing,
                                .group = message.group,
                                .tag = message.tag,
                                .payload = encode(ranks)});
    }
  } else if (group.inquiry.has_value() && group.inquiry->missing.size() < kNamesMax) {
    group.inquiry->missing.insert(group.inquiry->missing.end(), ranks.begin(), ranks.end());
  }
  return ok();
}

void Gathers::conclude(uint64_t id, AgentGroup& group) {
  GatherInquiry& inquiry = *group.inquiry;
  const auto at = group.gathers.find(inquiry.gather);
  if (group.failure.has_value() || at == group.gathers.end()) {
    group.inquiry.reset();
    return;
  }
  std::string missing;
  std::string named = std::to_string(inquiry.gather);
  for (const MissingRank& one : inquiry.missing) {
    named += fmt::format(" {}", one.rank);
    missing += (missing.empty() ? "" : ", ") + state_.name_of(one.rank);
    missing += one.why.empty() ? "" : fmt::format(" [{}]", one.why);
  }
  for (const uint32_t child : group.children()) {
    if (missing.empty() && at->second.processes.count(child) == 0) {
      missing = fmt::format("{}, whose process does not answer",
                            state_.name_of(state_.map->table.ranks_of(child).front()));
    }
  }
  const std::string sentence =
      fmt::format("still waiting for {}: {}", missing, inquiry.error.message());
  if (inquiry.error.code() == Code::kInProgress) {
    const uint32_t asker =
        std::exchange(group.last_named, named) == named ? kNobody : inquiry.asker;
    group.inquiry.reset();
    tell_late(group, {.type = MessageType::kLate, .from = asker, .group = id, .payload = sentence});
    return;
  }
  fail_(id, *group.ranks.begin(), fail(Code::kTimeout, "{}", sentence));
}

/// To one rank of each process, which logs it: the asker in its process.
void Gathers::tell_late(const AgentGroup& group, const Message& late) {
  for (const uint32_t child : group.children()) {
    if (!state_.is_gone(child)) {
      state_.out.send(child, late);
    }
  }
  if (group.opened.count(late.from) != 0 && group.left.count(late.from) == 0) {
    state_.out.deliver(late.from, late);
    return;
  }
  for (const uint32_t rank : group.opened) {
    if (group.left.count(rank) == 0) {
      state_.out.deliver(rank, late);
      return;
    }
  }
}

std::vector<MissingRank> Gathers::explain_missing(const std::vector<uint32_t>& ranks) const {
  const std::string why = state_.out.hooks.explain();
  std::vector<MissingRank> missing;
  for (const uint32_t rank : ranks) {
    missing.push_back({.rank = rank, .why = why});
  }
  return missing;
}

void Gathers::fail_for_disagreement(uint64_t id, uint32_t one, uint32_t other) {
  fail_(id, one,
        fail(Code::kInvalidUsage,
             "{} and {} disagree on who is in a new communicator: call ncclCommSplit or "
             "ncclCommShrink with the same arguments on all ranks",
             state_.name_of(one), one == other ? "another rank" : state_.name_of(other)));
}

}  // namespace plexus
