// SPDX-License-Identifier: Apache-2.0
#include "core/control/agent_state.hpp"

#include <algorithm>

#include "core/base/hash.hpp"
#include "guest/assert.hpp"

namespace plexus {
namespace {

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

std::optional<uint32_t> AgentGroup::parent() const {
  const auto at = layout->tree.parent(position);
  return at.has_value() ? std::optional(layout->tree.process_at(*at)) : std::nullopt;
}

std::vector<uint32_t> AgentGroup::children() const {
  auto found = layout->tree.children(position);
  for (uint32_t& child : found) {
    child = layout->tree.process_at(child);
  }
  return found;
}

bool AgentGroup::awaits_result() const {
  return std::any_of(gathers.begin(), gathers.end(), [this](const auto& gather) {
    return gather.second.contributions.size() == expected;
  });
}

bool AgentGroup::waits_for(uint32_t process) const {
  if (parent() == process) {
    return awaits_result();
  }
  return std::any_of(gathers.begin(), gathers.end(), [process](const auto& gather) {
    return gather.second.processes.count(process) == 0;
  });
}

AgentGroup* AgentState::find(uint64_t id) {
  const auto at = groups.find(id);
  return at == groups.end() ? nullptr : &at->second;
}

std::vector<uint64_t> AgentState::group_ids() const {
  std::vector<uint64_t> ids;
  ids.reserve(groups.size());
  for (const auto& [id, group] : groups) {
    ids.push_back(id);
  }
  return ids;
}

AgentGroup& AgentState::make_group(uint64_t id, std::shared_ptr<const GroupLayout> layout) {
  PLEXUS_DCHECK(groups.count(id) == 0, id);
  AgentGroup& group = groups[id];
  group.layout = std::move(layout);
  const ControlTree& tree = group.layout->tree;
  const auto mine = tree.position_of(self);
  PLEXUS_DCHECK(mine.has_value(), id, self);  // a rank of this process is in it
  group.position = mine.value_or(0);
  for (const uint32_t position : tree.subtree(group.position)) {
    for (const uint32_t rank : map->table.ranks_of(tree.process_at(position))) {
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

bool AgentState::is_below(const AgentGroup& group, uint32_t rank) const {
  const ControlTree& tree = group.layout->tree;
  auto at = tree.position_of(map->table.process_of(rank));
  while (at.has_value() && *at > group.position) {
    at = tree.parent(*at);
  }
  return at == group.position;
}

std::optional<uint32_t> AgentState::next_alive(const ControlTree& tree, uint32_t position) const {
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

void AgentState::suspect(AgentGroup& group, uint32_t process) const {
  PLEXUS_DCHECK(process != self && !group.failure.has_value(), process);
  if (!group.suspect.has_value()) {
    group.suspect = std::pair(process, std::max(now + kSuspicionTime, gone.at(process)));
  }
}

}  // namespace plexus
