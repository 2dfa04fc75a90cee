// SPDX-License-Identifier: Apache-2.0
#include "core/control/probes.hpp"

#include <algorithm>
#include <utility>
#include <vector>

namespace plexus {
namespace {

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

const AgentGroup* find_group(AgentState& state, uint32_t rank, const Message& message) {
  const AgentGroup* const group = state.find(message.group);
  const bool fits = group != nullptr && group->layout->has(rank) &&
                    group->layout->has(message.to) && message.payload.size() <= kBlobBytesMax;
  return fits ? group : nullptr;
}

Result<void> Probes::take(uint32_t rank, Message message) {
  const AgentGroup* const group = find_group(state_, rank, message);
  if (group == nullptr) {
    return break_of_protocol("a probe that cannot be delivered");
  }
  message.from = rank;
  // Whoever holds the leave record, if the rank's process no longer does: the processes above it,
  // and then the first ones, since notes go there.
  const ControlTree& tree = group->layout->tree;
  const uint32_t home = state_.map->table.process_of(message.to);
  std::vector<uint32_t> holders = {home};
  for (auto at = tree.parent(tree.position_of(home).value_or(0)); at.has_value();
       at = tree.parent(*at)) {
    holders.push_back(tree.process_at(*at));
  }
  for (uint32_t at = 0; at < std::min<uint32_t>(tree.size(), ControlTree::kFanOut); ++at) {
    holders.push_back(tree.process_at(at));
  }
  size_t tried = 0;
  if (const auto seek = state_.seeks.find({message.group, message.to});
      seek != state_.seeks.end()) {
    tried = seek->second;
  }
  for (; tried < holders.size(); ++tried) {
    const uint32_t holder = holders[tried];
    if (holder == state_.self) {
      if (const auto left = group->left.find(message.to); left != group->left.end()) {
        state_.out.deliver(rank, answer_to(message, &left->second));
        return ok();
      }
      if (holder == home) {
        state_.out.deliver(message.to, message);
        return ok();
      }
    } else if (!state_.is_gone(holder)) {
      state_.out.send(holder, message);
      return ok();
    }
  }
  state_.seeks.erase({message.group, message.to});  // from the beginning, the next time
  return ok();
}

void Probes::take_from(uint32_t process, const Message& message) {
  const AgentGroup* const group = state_.find(message.group);
  const bool is_local = state_.ranks.count(message.to) != 0;
  if (group == nullptr && is_local) {
    return;  // not opened yet; probes are repeated
  }
  const LeaveNote* note = nullptr;
  if (group != nullptr) {
    const auto left = group->left.find(message.to);
    note = left == group->left.end() ? nullptr : &left->second;
  }
  if (note == nullptr && is_local) {
    state_.out.deliver(message.to, message);
  } else {
    state_.out.send(process, answer_to(message, note));
  }
}

Result<void> Probes::take_answer(const Message& message) {
  const AgentGroup* const group = state_.find(message.group);
  if (group == nullptr || !group->layout->has(message.from) ||
      group->ranks.count(message.to) == 0) {
    return ok();
  }
  if (message.tag != 0) {
    ++state_.seeks[{message.group, message.from}];
  } else if (group->left.count(message.to) == 0) {
    state_.out.deliver(message.to, message);
  }
  return ok();
}

}  // namespace plexus
