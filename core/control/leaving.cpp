// SPDX-License-Identifier: Apache-2.0
#include "core/control/leaving.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

#include "guest/assert.hpp"

namespace plexus {

Result<void> Leaving::take_leave_group(uint32_t rank, Message message) {
  AgentGroup* const group = state_.find(message.group);
  if (group == nullptr || group->ranks.count(rank) == 0 || message.payload.size() > kBlobBytesMax) {
    return break_of_protocol("a rank leaves a group that it is not in");
  }
  note(message.group, *group,
       {.rank = rank,
        .gathers = group->failure.has_value() ? LeaveNote::kAfterFailure : group->done[rank],
        .record = std::move(message.payload)});
  state_.out.deliver(rank, {.type = MessageType::kLeaveGroup, .group = message.group});
  check(message.group, *group);
  progress(message.group, *group);
  return ok();
}

/// Notes come from below, and from processes whose parents are not there.
Result<void> Leaving::take_notes(AgentGroup& group, const Message& message) {
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
  if (state_.is_over) {
    return ok();  // it has left
  }
  group.notes_at.reset();
  check(message.group, group);
  progress(message.group, group);
  return ok();
}

void Leaving::note(uint64_t id, AgentGroup& group, LeaveNote note) {
  const uint32_t rank = note.rank;
  if (!group.left.insert_or_assign(rank, std::move(note)).second) {
    return;
  }
  group.left_below += state_.is_below(group, rank) ? 1 : 0;
  PLEXUS_DCHECK(group.left_below <= group.expected && group.left_below <= group.left.size(),
                group.left_below, group.expected, group.left.size());
  compare(id, group, rank);
}

/// Fails the group if a gather waits for a rank that has left in order, since it could never end.
/// One that has left after a failure may be heard of before the failure is.
void Leaving::check(uint64_t id, AgentGroup& group) {
  if (group.left.empty() || group.failure.has_value()) {
    return;
  }
  for (const auto& [number, gather] : group.gathers) {
    PLEXUS_DCHECK(!gather.ranks.empty() || !gather.processes.empty(), id, number);
    for (const auto& [gone, note] : group.left) {
      if (note.gathers <= number) {
        const uint32_t caller = gather.ranks.empty()
                                    ? state_.map->table.ranks_of(*gather.processes.begin()).front()
                                    : *gather.ranks.begin();
        fail_(id, gone,
              fail(Code::kInvalidUsage,
                   "{} has destroyed a communicator in which {} calls init, split or shrink: every "
                   "rank must make the same calls before it destroys the communicator",
                   state_.name_of(gone), state_.name_of(caller)));
        return;
      }
    }
  }
}

/// Has the record of `rank`, which is here now, compared with that of another rank, or those of all
/// once they are here. When many leave at once no process may get those of all.
void Leaving::compare(uint64_t id, AgentGroup& group, uint32_t rank) {
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
  group.is_compared = state_.out.hooks.compare(id, members.size(), records);
}

/// May erase the group.
void Leaving::progress(uint64_t id, AgentGroup& group) {
  if (group.notes_at.has_value()) {
    return;
  }
  size_t covered = group.left_below;
  for (const uint32_t dead : state_.dead) {
    if (dead == state_.self) {
      continue;  // taken for dead by others: its ranks are here, and leave
    }
    for (const uint32_t rank : state_.map->table.ranks_of(dead)) {
      const bool counts = group.layout->has(rank) && group.left.count(rank) == 0;
      covered += counts && state_.is_below(group, rank) ? 1 : 0;
    }
  }
  PLEXUS_DCHECK(covered <= group.expected, id, covered, group.expected);
  if (covered < group.expected) {
    return;
  }
  const auto above = state_.next_alive(group.layout->tree, group.position);
  if (!above.has_value()) {
    if (is_left_by_all(group)) {
      end_group(id, group);
    }
    return;
  }
  PLEXUS_DCHECK(*above != state_.self, id, *above);
  group.notes_at = above;
  send_notes(id, group, *above);
}

/// Where the root has left, not only those below have to.
bool Leaving::is_left_by_all(const AgentGroup& group) const {
  return std::all_of(
      group.layout->members.begin(), group.layout->members.end(), [&](uint32_t rank) {
        const uint32_t process = state_.map->table.process_of(rank);
        return group.left.count(rank) != 0 || (process != state_.self && state_.is_gone(process));
      });
}

void Leaving::send_notes(uint64_t id, const AgentGroup& group, uint32_t process) {
  std::vector<LeaveNote> notes;
  for (const auto& [rank, note] : group.left) {
    notes.push_back(note);
  }
  state_.out.send(process, {.type = MessageType::kLeaveGroup,
                            .group = id,
                            .tag = group.is_compared ? 1U : 0U,
                            .payload = encode(notes)});
}

/// All members have left.
void Leaving::end_group(uint64_t id, AgentGroup& group) {
  for (const uint32_t child : group.children()) {
    if (!state_.is_gone(child)) {
      state_.out.send(child, {.type = MessageType::kOver, .group = id});
    }
  }
  std::erase_if(state_.seeks, [&](const auto& seek) { return seek.first.first == id; });
  state_.notices.erase({FailureNotice::Kind::kFailure, 0, id});
  state_.groups.erase(id);
}

/// Who keeps the leave notes when this process leaves.
std::optional<uint32_t> Leaving::successor_of(const AgentGroup& group) const {
  const ControlTree& tree = group.layout->tree;
  auto successor = state_.next_alive(tree, group.position);
  for (uint32_t at = group.position + 1; at < tree.size() && !successor.has_value(); ++at) {
    if (!state_.is_gone(tree.process_at(at))) {
      successor = tree.process_at(at);
    }
  }
  PLEXUS_DCHECK(successor != state_.self, state_.self);
  return successor;
}

/// Leave notes that went to a process that is gone go to another one.
void Leaving::take_back_notes(uint32_t process) {
  for (auto& [id, group] : state_.groups) {
    if (group.notes_at == process) {
      group.notes_at.reset();
    }
  }
  for (const uint64_t id : state_.group_ids()) {
    if (AgentGroup* const group = state_.find(id); group != nullptr) {
      progress(id, *group);
    }
  }
}

void Leaving::hand_over() {
  for (const auto& [id, group] : state_.groups) {
    const auto successor = successor_of(group);
    if (!group.left.empty() && !group.notes_at.has_value() && successor.has_value()) {
      send_notes(id, group, *successor);
    }
  }
}

}  // namespace plexus
