// SPDX-License-Identifier: Apache-2.0
// The hub's state as bytes, for the move to another process: the messages that would build the
// state again, as README.md specifies. The bytes come from a socket, though from a member that
// knows the secret: a state that no hub can have is refused as a whole.
#include <algorithm>
#include <set>

#include "core/bootstrap/hub.hpp"

namespace plexus {
namespace {

constexpr size_t kStateReadBytes = 16UL * 1024;  // small, because the reader moves the rest of a
                                                 // piece for each message

Error damaged_state(std::string_view what) {
  return fail(Code::kRemoteError, "the state of the control plane is damaged: {}", what);
}

bool contains(const std::vector<uint32_t>& ranks, uint32_t rank) {
  return std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
}

}  // namespace

std::string Hub::to_bytes() const {
  std::string bytes;
  for (const auto& [rank, member] : members_) {
    bytes += encode(Message{.type = MessageType::kJoin,
                            .peer = member.present ? 1U : 0U,
                            .payload = encode(member.info)});
  }
  for (const auto& [id, group] : groups_) {
    bytes += encode(Message{.type = MessageType::kGroup,
                            .group = id,
                            .tag = group.failed ? 1U : 0U,
                            .payload = encode(group.members)});
    for (const auto& [number, gather] : group.gathers) {
      for (const auto& [rank, blob] : gather) {
        bytes += encode(Message{.type = MessageType::kGather,
                                .peer = rank,
                                .group = id,
                                .tag = number,
                                .payload = blob});
      }
    }
    for (const auto& [rank, record] : group.left) {
      bytes += encode(
          Message{.type = MessageType::kLeaveGroup, .peer = rank, .group = id, .payload = record});
    }
  }
  return bytes;
}

Result<void> Hub::restore(std::string_view bytes) {
  if (anybody_came()) {
    return fail(Code::kInternalError, "a hub with members takes the state of another");
  }
  MessageReader reader;
  size_t taken_bytes = 0;
  for (size_t at = 0; at < bytes.size(); at += kStateReadBytes) {
    const std::string_view piece = bytes.substr(at, kStateReadBytes);
    reader.append(piece.data(), piece.size());
    for (;;) {
      PLEXUS_TRY(message, reader.next());
      if (!message.has_value()) {
        break;
      }
      taken_bytes += kHeaderBytes + message->payload.size();
      PLEXUS_TRY(restore_message(*message));
    }
  }
  const auto world = groups_.find(world_);
  if (taken_bytes != bytes.size() || !all_joined() || world == groups_.end() ||
      world->second.members.size() != nranks_) {
    return damaged_state("it is not whole");
  }
  return ok();
}

Result<void> Hub::restore_message(const Message& message) {
  switch (message.type) {
    case MessageType::kJoin:
      return restore_member(message);
    case MessageType::kGroup:
      return restore_group(message);
    case MessageType::kGather:
      return restore_gather(message);
    case MessageType::kLeaveGroup:
      return restore_leave_record(message);
    default:
      return damaged_state("a message that is no part of it");
  }
}

Result<void> Hub::restore_member(const Message& message) {
  PLEXUS_TRY(info, decode_join(message.payload));
  if (!groups_.empty() || message.peer > 1 || (nranks_ != 0 && nranks_ != info.nranks)) {
    return damaged_state("a member that does not fit");
  }
  nranks_ = info.nranks;
  const bool is_present = message.peer == 1;
  if (!members_.emplace(info.rank, Member{info, is_present}).second) {
    return damaged_state("a rank that is there twice");
  }
  present_ += is_present ? 1 : 0;
  return ok();
}

Result<void> Hub::restore_group(const Message& message) {
  PLEXUS_TRY(ranks, decode_ranks(message.payload));
  const std::set<uint32_t> distinct(ranks.begin(), ranks.end());
  if (!all_joined() || message.tag > 1 || distinct.size() != ranks.size() ||
      *distinct.rbegin() >= nranks_ || groups_.size() >= kHubGroupsMax ||
      groups_.count(message.group) != 0) {
    return damaged_state("a group that cannot be");
  }
  Group group;
  group.members = std::move(ranks);
  group.failed = message.tag == 1;
  groups_.emplace(message.group, std::move(group));
  return ok();
}

Result<void> Hub::restore_gather(const Message& message) {
  const auto at = groups_.find(message.group);
  if (at == groups_.end() || !contains(at->second.members, message.peer) ||
      message.payload.size() > kBlobBytesMax) {
    return damaged_state("a part of a gather that cannot be");
  }
  Group& group = at->second;
  auto& gather = group.gathers[message.tag];
  const bool is_new = gather.emplace(message.peer, message.payload).second;
  if (!is_new || gather.size() >= group.members.size() ||
      group.gathers.size() > kHubGathersMax + 1) {
    return damaged_state("a gather that cannot be");
  }
  return ok();
}

Result<void> Hub::restore_leave_record(const Message& message) {
  const auto at = groups_.find(message.group);
  if (at == groups_.end() || !contains(at->second.members, message.peer) ||
      message.payload.size() > kBlobBytesMax ||
      !at->second.left.emplace(message.peer, message.payload).second) {
    return damaged_state("a leave record that cannot be");
  }
  return ok();
}

Result<void> Hub::rejoin(const JoinInfo& info) {
  const auto at = members_.find(info.rank);
  if (at == members_.end() || !at->second.present || encode(at->second.info) != encode(info)) {
    return fail(Code::kRemoteError, "rank {} ({}:{}) is no member of this job", info.rank,
                info.host, info.pid);
  }
  if (const auto host = host_member(); host.has_value()) {
    tell_host(info.rank, *host);
  }
  return ok();
}

}  // namespace plexus
