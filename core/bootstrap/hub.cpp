// SPDX-License-Identifier: Apache-2.0
#include "core/bootstrap/hub.hpp"

#include <algorithm>
#include <numeric>

namespace plexus {
namespace {

constexpr uint32_t kNobody = ~0U;

Error breaks_rules(std::string_view what) {
  return fail(Code::kRemoteError, "a member broke the protocol: {}", what);
}

}  // namespace

std::string Hub::name_of(uint32_t member) const {
  const auto at = members_.find(member);
  return at == members_.end()
             ? fmt::format("rank {}", member)
             : fmt::format("rank {} ({}:{})", member, at->second.info.host, at->second.info.pid);
}

Result<void> Hub::join(const JoinInfo& info) {
  if (members_.empty()) {
    nranks_ = info.nranks;
    Group world;
    world.members.resize(nranks_);
    std::iota(world.members.begin(), world.members.end(), 0U);
    groups_.emplace(world_, std::move(world));
  } else {
    const JoinInfo& first = members_.begin()->second.info;
    std::string wrong;
    if (info.nranks != nranks_) {
      wrong = fmt::format("rank {} ({}:{}) says there are {} ranks, {} says {}", info.rank,
                          info.host, info.pid, info.nranks, name_of(first.rank), nranks_);
    } else if (info.version != first.version) {
      wrong = fmt::format("rank {} ({}:{}) has version {}, {} has {}", info.rank, info.host,
                          info.pid, info.version, name_of(first.rank), first.version);
    } else if (members_.count(info.rank) != 0) {
      wrong = fmt::format("{}:{} and {} both say they are rank {}", info.host, info.pid,
                          name_of(info.rank), info.rank);
    }
    if (!wrong.empty()) {
      const Error error = fail(Code::kInvalidUsage,
                               "{}: give every rank the same unique id and number of ranks, and a "
                               "rank of its own",
                               wrong);
      fail_group(world_, groups_.at(world_), kNobody, error);
      return error.clone();
    }
  }
  members_.emplace(info.rank, Member{info});
  ++present_;
  if (groups_.at(world_).failed) {
    return fail(Code::kRemoteError, "the job failed before rank {} joined: {}", info.rank,
                groups_.at(world_).why);
  }
  if (const auto host = all_joined() ? host_member() : std::nullopt; host.has_value()) {
    for (const auto& [other, unused] : members_) {
      tell_host(other, *host);
    }
  }
  return ok();
}

std::optional<uint32_t> Hub::host_member() const {
  const auto at = std::find_if(members_.begin(), members_.end(), [&](const auto& entry) {
    return entry.second.present && entry.second.info.process == host_process_;
  });
  return at == members_.end() ? std::nullopt : std::optional(at->first);
}

/// Tells a member which rank lives in the hub's process, so that it can name that rank when it
/// loses the hub.
void Hub::tell_host(uint32_t to, uint32_t host) {
  send_(to, Message{.type = MessageType::kJoin, .peer = host, .payload = name_of(host)});
}

void Hub::give_up_joining() {
  std::string missing;
  size_t count = 0;
  for (uint32_t rank = 0; rank < nranks_; ++rank) {
    if (members_.count(rank) == 0 && ++count <= 16) {
      missing += (missing.empty() ? "" : ", ") + std::to_string(rank);
    }
  }
  if (count > 0) {
    fail_group(
        world_, groups_.at(world_), kNobody,
        fail(Code::kTimeout,
             "{} of {} ranks did not come (rank {}{}): start them, or give them more time with "
             "PLEXUS_BOOTSTRAP_TIMEOUT",
             count, nranks_, missing, count > 16 ? ", ..." : ""));
  }
}

Result<void> Hub::take(uint32_t member, Message message) {
  const auto at = members_.find(member);
  if (at == members_.end() || !at->second.present) {
    return breaks_rules("a message before joining or after leaving");
  }
  switch (message.type) {
    case MessageType::kGroup:
      return take_group(member, message);
    case MessageType::kGather:
      return take_gather(member, std::move(message));
    case MessageType::kPost:
      return take_post(member, std::move(message));
    case MessageType::kProbe:
      return take_probe(member, std::move(message));
    case MessageType::kLeaveGroup:
      return take_leave_group(member, std::move(message));
    case MessageType::kFail:
      take_failure(member, message);
      return ok();
    case MessageType::kLeave:
      leave(member);
      return ok();
    default:
      return breaks_rules("a message that only the hub sends");
  }
}

Hub::Group* Hub::find_group(uint64_t id, uint32_t member) {
  const auto at = groups_.find(id);
  if (at == groups_.end()) {
    return nullptr;
  }
  const auto& members = at->second.members;
  return std::find(members.begin(), members.end(), member) == members.end() ? nullptr : &at->second;
}

Result<void> Hub::take_group(uint32_t member, const Message& message) {
  PLEXUS_TRY(ranks, decode_ranks(message.payload));
  std::vector<uint32_t> sorted = ranks;
  std::sort(sorted.begin(), sorted.end());
  const bool distinct = std::adjacent_find(sorted.begin(), sorted.end()) == sorted.end();
  const bool contains = std::binary_search(sorted.begin(), sorted.end(), member);
  if (sorted.back() >= nranks_ || !distinct || !contains) {
    return breaks_rules("a group of ranks that are not there");
  }
  const auto at = groups_.find(message.group);
  if (at == groups_.end()) {
    if (groups_.size() >= kHubGroupsMax) {
      return breaks_rules("too many groups");
    }
    Group group;
    group.members = std::move(ranks);
    groups_.emplace(message.group, std::move(group));
  } else if (at->second.members != ranks) {
    fail_group(message.group, at->second, kNobody,
               fail(Code::kInvalidUsage,
                    "{} and another rank disagree on who is in a new communicator: call "
                    "ncclCommSplit or ncclCommShrink alike on all ranks",
                    name_of(member)));
  }
  // A member may have been lost before this group was announced.
  for (const uint32_t other : groups_.at(message.group).members) {
    const auto found = members_.find(other);
    if (found != members_.end() && !found->second.present) {
      fail_group(message.group, groups_.at(message.group), other,
                 fail(Code::kRemoteError, "{} is gone", name_of(other)));
      break;
    }
  }
  return ok();
}

Result<void> Hub::take_gather(uint32_t member, Message message) {
  Group* const group = find_group(message.group, member);
  if (group == nullptr) {
    return breaks_rules("a gather in a group it is not in");
  }
  if (message.payload.size() > kBlobBytesMax || group->gathers.size() > kHubGathersMax) {
    return breaks_rules("a gather beyond the bounds");
  }
  auto& gather = group->gathers[message.tag];
  gather[member] = std::move(message.payload);
  if (gather.size() < group->members.size()) {
    check_gathers(message.group, *group);
    return ok();
  }
  std::vector<std::string> blobs;
  for (const uint32_t rank : group->members) {
    blobs.push_back(std::move(gather.at(rank)));
  }
  group->gathers.erase(message.tag);
  const Message all{.type = MessageType::kGathered,
                    .group = message.group,
                    .tag = message.tag,
                    .payload = encode(blobs)};
  // Ranks in the hub's process come last: once they have the result, their process may exit, and
  // the hub with it.
  for (const bool of_host : {false, true}) {
    for (const uint32_t rank : group->members) {
      if (is_of_host(rank) == of_host) {
        send_(rank, all);
      }
    }
  }
  return ok();
}

Result<void> Hub::take_post(uint32_t member, Message message) {
  Group* const group = find_group(message.group, member);
  if (group == nullptr || find_group(message.group, message.peer) == nullptr ||
      message.payload.size() > kBlobBytesMax) {
    return breaks_rules("a control message that cannot be delivered");
  }
  const uint32_t to = std::exchange(message.peer, member);
  if (group->left.count(to) == 0) {
    send_(to, message);
  }
  return ok();
}

Result<void> Hub::take_probe(uint32_t member, Message message) {
  Group* const group = find_group(message.group, member);
  if (group == nullptr || find_group(message.group, message.peer) == nullptr ||
      message.payload.size() > kBlobBytesMax) {
    return breaks_rules("a probe that cannot be delivered");
  }
  const auto left = group->left.find(message.peer);
  if (left != group->left.end()) {
    send_(member, Message{.type = MessageType::kLeft,
                          .peer = message.peer,
                          .group = message.group,
                          .payload = left->second});
    return ok();
  }
  const uint32_t to = std::exchange(message.peer, member);
  send_(to, message);
  return ok();
}

Result<void> Hub::take_leave_group(uint32_t member, Message message) {
  Group* const group = find_group(message.group, member);
  if (group == nullptr || message.payload.size() > kBlobBytesMax) {
    return breaks_rules("it leaves a group it is not in");
  }
  group->left[member] = std::move(message.payload);
  check_gathers(message.group, *group);
  send_(member, Message{.type = MessageType::kLeaveGroup, .group = message.group});
  if (message.group != world_ && is_over(*group)) {
    groups_.erase(message.group);
  }
  return ok();
}

/// Fails the group if a gather waits for a member that has left in order, since it could never end.
void Hub::check_gathers(uint64_t id, Group& group) {
  if (group.left.empty()) {
    return;
  }
  for (const auto& [number, gather] : group.gathers) {
    for (const auto& [gone, record] : group.left) {
      if (gather.count(gone) == 0) {
        fail_group(id, group, kNobody,
                   fail(Code::kInvalidUsage,
                        "{} has destroyed a communicator in which {} calls init, split or shrink: "
                        "every rank must make the same calls before it destroys the communicator",
                        name_of(gone), name_of(gather.begin()->first)));
        return;
      }
    }
  }
}

/// Whether every member has left the group or is gone.
bool Hub::is_over(const Group& group) const {
  return std::all_of(group.members.begin(), group.members.end(), [&](uint32_t rank) {
    const auto at = members_.find(rank);
    return group.left.count(rank) != 0 || (at != members_.end() && !at->second.present);
  });
}

void Hub::erase_groups_of(uint32_t member) {
  std::erase_if(groups_, [&](const auto& entry) {
    const auto& members = entry.second.members;
    return entry.first != world_ &&
           std::find(members.begin(), members.end(), member) != members.end() &&
           is_over(entry.second);
  });
}

void Hub::take_failure(uint32_t member, const Message& message) {
  Group* const group = find_group(message.group, member);
  if (group == nullptr) {
    return;
  }
  const Error error = decode_error(message.payload);
  const auto gather = group->gathers.find(message.tag);
  if (error.code() == Code::kTimeout && gather != group->gathers.end()) {
    std::string missing;  // the sender waits too, so it also gets the error
    for (const uint32_t other : group->members) {
      if (gather->second.count(other) == 0) {
        missing += (missing.empty() ? "" : ", ") + name_of(other);
      }
    }
    fail_group(message.group, *group, kNobody,
               fail(Code::kTimeout, "still waiting for {}: {}", missing, error.message()));
    return;
  }
  const bool keeps = error.code() == Code::kInvalidUsage;
  fail_group(message.group, *group, member,
             keeps ? error.clone()
                   : fail(Code::kRemoteError, "{} failed: {}", name_of(member), error.message()));
}

void Hub::fail_group(uint64_t id, Group& group, uint32_t spared, const Error& error) {
  if (group.failed) {
    return;
  }
  group.failed = true;
  group.why = error.message();
  const Message message{.type = MessageType::kFail, .group = id, .payload = encode(error)};
  for (const uint32_t rank : group.members) {
    const auto at = members_.find(rank);
    if (rank != spared && at != members_.end() && at->second.present) {
      send_(rank, message);
    }
  }
}

void Hub::fail_groups_of(uint32_t member, const Error& error) {
  for (auto& [id, group] : groups_) {
    if (std::find(group.members.begin(), group.members.end(), member) != group.members.end() &&
        group.left.count(member) == 0) {
      fail_group(id, group, member, error);
    }
  }
}

void Hub::lose(uint32_t member, std::string_view how) {
  const auto at = members_.find(member);
  if (at == members_.end() || !at->second.present) {
    return;
  }
  at->second.present = false;
  --present_;
  fail_groups_of(member, fail(Code::kRemoteError, "{} {}", name_of(member), how));
  erase_groups_of(member);
}

void Hub::leave(uint32_t member) {
  Member& leaving = members_.at(member);
  leaving.present = false;
  --present_;
  erase_groups_of(member);
  // Ranks that have not joined yet only know this address, so the hub cannot move, and its process
  // may exit from now on.
  if (leaving.info.process == host_process_ && !all_joined() && !host_member().has_value()) {
    say_goodbye();
  }
}

bool Hub::needs_heir() const { return all_joined() && present_ > 0 && !host_member().has_value(); }

bool Hub::is_of_host(uint32_t member) const {
  const auto at = members_.find(member);
  return at != members_.end() && at->second.info.process == host_process_;
}

std::vector<uint32_t> Hub::present() const {
  std::vector<uint32_t> ranks;
  for (const auto& [rank, member] : members_) {
    if (member.present) {
      ranks.push_back(rank);
    }
  }
  return ranks;
}

void Hub::say_goodbye() {
  for (const uint32_t rank : present()) {
    send_(rank, Message{.type = MessageType::kLeave});
  }
}

}  // namespace plexus
