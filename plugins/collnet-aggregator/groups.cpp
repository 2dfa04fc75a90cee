// SPDX-License-Identifier: Apache-2.0
#include "plugins/collnet-aggregator/groups.hpp"

#include <algorithm>
#include <cstring>

#include "guest/assert.hpp"
#include "plugins/collnet-aggregator/arithmetic.hpp"

namespace plexus::aggregator {
namespace {

constexpr size_t kGroupsMax = 4096;

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text.data(), std::min<size_t>(text.size(), kErrorBytesMax)));
}

}  // namespace

Result<void> check_frame(const WireFrame& frame) {
  if (frame.magic != kFrameMagic) {
    return fail(PLEXUS_REMOTE_ERROR, "it does not speak the aggregator's protocol, version 2");
  }
  const uint32_t most = frame.kind == FrameKind::kReduce  ? kMessageBytesMax
                        : frame.kind == FrameKind::kHello ? sizeof(WireHello)
                        : frame.kind == FrameKind::kError ? kErrorBytesMax
                                                          : 0;
  if (frame.kind < FrameKind::kHello || frame.kind > FrameKind::kError || frame.reserved != 0 ||
      frame.size_bytes > most) {
    return fail(PLEXUS_REMOTE_ERROR, "it sent an invalid frame of kind {} with {} bytes",
                static_cast<int>(frame.kind), frame.size_bytes);
  }
  if (frame.kind == FrameKind::kReduce &&
      (!can_reduce(frame.type, frame.op) || frame.size_bytes % element_bytes(frame.type) != 0)) {
    return fail(PLEXUS_REMOTE_ERROR,
                "it requested an unsupported reduction of {} bytes of type {} with operation {}",
                frame.size_bytes, frame.type, frame.op);
  }
  return ok();
}

std::shared_ptr<const Bytes> make_frame(WireFrame frame, std::span<const std::byte> payload) {
  frame.size_bytes = static_cast<uint32_t>(payload.size());
  auto bytes = std::make_shared<Bytes>(sizeof(frame) + payload.size());
  std::memcpy(bytes->data(), &frame, sizeof(frame));
  std::copy(payload.begin(), payload.end(),
            bytes->begin() + static_cast<std::ptrdiff_t>(sizeof(frame)));
  return bytes;
}

void Groups::open(int link, std::string peer) { links_[link].peer = std::move(peer); }

bool Groups::is_member(int link) const {
  const auto at = links_.find(link);
  return at != links_.end() && at->second.group != nullptr;
}

Result<void> Groups::feed(int link, std::span<const std::byte> bytes) {
  Bytes& unread = links_.at(link).unread;
  unread.insert(unread.end(), bytes.begin(), bytes.end());
  size_t done = 0;
  while (unread.size() - done >= sizeof(WireFrame)) {
    WireFrame frame;
    std::memcpy(&frame, unread.data() + done, sizeof(frame));
    PLEXUS_TRY(check_frame(frame));
    const size_t whole_bytes = sizeof(frame) + frame.size_bytes;
    if (unread.size() - done < whole_bytes) {
      break;
    }
    PLEXUS_TRY(
        take(link, frame, std::span(unread).subspan(done + sizeof(frame), frame.size_bytes)));
    done += whole_bytes;
  }
  unread.erase(unread.begin(), unread.begin() + static_cast<std::ptrdiff_t>(done));
  return ok();
}

Result<void> Groups::take(int link, const WireFrame& frame, std::span<const std::byte> payload) {
  Link& from = links_.at(link);
  if (from.group == nullptr && frame.kind == FrameKind::kHello) {
    return join(link, payload);
  }
  if (from.group == nullptr || frame.kind != FrameKind::kReduce) {
    return fail(PLEXUS_REMOTE_ERROR, "it sent an unexpected frame of kind {}",
                static_cast<int>(frame.kind));
  }
  if (!from.group->failure.empty()) {
    return ok();  // the failure is being sent to it
  }
  return add_part(from, frame, payload);
}

Result<void> Groups::join(int link, std::span<const std::byte> payload) {
  WireHello hello{};
  if (payload.size() == sizeof(hello)) {
    std::memcpy(&hello, payload.data(), sizeof(hello));
  }
  if (hello.members == 0 || hello.members > kMembersMax || hello.member >= hello.members) {
    return fail(PLEXUS_REMOTE_ERROR, "it claims to be member {} of {}", hello.member,
                hello.members);
  }
  if (groups_.size() >= kGroupsMax && groups_.find(hello.group) == groups_.end()) {
    return fail(PLEXUS_SYSTEM_ERROR, "there are already {} groups, the maximum", kGroupsMax);
  }
  std::shared_ptr<Group>& group = groups_[hello.group];
  if (group == nullptr) {
    group = std::make_shared<Group>();
    group->id = hello.group;
    group->links.assign(hello.members, -1);
  }
  if (group->links.size() != hello.members || group->links[hello.member] >= 0) {
    return fail(PLEXUS_REMOTE_ERROR,
                "it claims to be member {} of {}, which contradicts the other members",
                hello.member, hello.members);
  }
  if (!group->failure.empty()) {  // nobody told this one, which would wait for ever
    return fail(PLEXUS_REMOTE_ERROR, "{}", group->failure);
  }
  group->links[hello.member] = link;
  Link& from = links_.at(link);
  from.group = group;
  from.member = hello.member;
  PLEXUS_DCHECK(group->links_here < group->links.size(), group->links_here);
  if (++group->links_here == group->links.size()) {
    const auto ready = make_frame({.kind = FrameKind::kReady}, {});
    for (const int each : group->links) {
      send_(each, ready);
    }
  }
  return ok();
}

Result<void> Groups::add_part(Link& link,
                              const WireFrame& frame,
                              std::span<const std::byte> payload) {
  Group& group = *link.group;
  if (frame.number != link.next || frame.number - group.rounds_done >= kRequestsMax ||
      group.links_here != group.links.size()) {
    return fail(PLEXUS_REMOTE_ERROR, "it sent reduction {}, expected {}", frame.number, link.next);
  }
  ++link.next;
  while (group.rounds.size() <= frame.number - group.rounds_done) {
    group.rounds.push_back({.type = frame.type,
                            .op = frame.op,
                            .parts = std::vector<Bytes>(group.links.size()),
                            .parts_here = 0});
  }
  Round& round = group.rounds[frame.number - group.rounds_done];
  const auto other = std::find_if(round.parts.begin(), round.parts.end(),
                                  [](const Bytes& part) { return !part.empty(); });
  const size_t size_bytes = other == round.parts.end() ? payload.size() : other->size();
  if (payload.empty() || round.type != frame.type || round.op != frame.op ||
      size_bytes != payload.size()) {
    return fail(PLEXUS_INVALID_USAGE,
                "the members' calls differ: it sent {} bytes of type {} with operation {} for "
                "reduction {}, another member sent {} bytes of type {} with operation {}",
                payload.size(), frame.type, frame.op, frame.number, size_bytes, round.type,
                round.op);
  }
  PLEXUS_DCHECK(round.parts[link.member].empty() && round.parts_here < round.parts.size(),
                link.member, round.parts_here);
  round.parts[link.member].assign(payload.begin(), payload.end());
  ++round.parts_here;
  finish_rounds(group);
  return ok();
}

/// Combines in the order of the members, so that the result does not depend on the order of
/// arrival.
void Groups::finish_rounds(Group& group) {
  while (!group.rounds.empty() && group.rounds.front().parts_here == group.links.size()) {
    Round& round = group.rounds.front();
    for (size_t member = 1; member < round.parts.size(); ++member) {
      combine(round.type, round.op, round.parts[0], round.parts[member]);
    }
    const auto result = make_frame({.kind = FrameKind::kReduce,
                                    .type = round.type,
                                    .op = round.op,
                                    .number = group.rounds_done},
                                   round.parts[0]);
    for (const int each : group.links) {
      send_(each, result);
    }
    ++group.rounds_done;
    group.rounds.pop_front();
  }
}

void Groups::end_group(Group& group, const std::string& why) {
  if (!group.failure.empty()) {
    return;
  }
  group.failure = why;
  group.rounds.clear();
  const auto notice = make_frame({.kind = FrameKind::kError}, bytes_of(why));
  for (const int each : group.links) {
    if (each >= 0) {
      send_(each, notice);
    }
  }
}

void Groups::close(int link, const std::string& why) {
  const auto at = links_.find(link);
  if (at == links_.end()) {
    return;
  }
  const Link gone = std::move(at->second);
  links_.erase(at);
  if (gone.group == nullptr) {
    return;
  }
  Group& group = *gone.group;
  group.links[gone.member] = -1;
  end_group(group, fmt::format("member {} of {} ({}) is gone: {}", gone.member, group.links.size(),
                               gone.peer, why));
  forget(group);
}

/// Drops a group that has no members left.
void Groups::forget(const Group& group) {
  if (std::all_of(group.links.begin(), group.links.end(), [](int link) { return link < 0; })) {
    groups_.erase(group.id);
  }
}

}  // namespace plexus::aggregator
