// SPDX-License-Identifier: Apache-2.0
#include "tools/slurm/topology.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>

#include "core/base/text.hpp"
#include "core/datacenter/fabric_file.hpp"
#include "core/datacenter/location.hpp"

namespace plexus {
namespace {

using Group = SlurmTopology::Group;
/// The switches below each one, by index.
using Children = std::vector<std::vector<size_t>>;

const char* kind_of(const SlurmTopology& topology) {
  return topology.kind == SlurmTopology::Kind::kTree ? "switch" : "block";
}

Error with_place(const Group& group, Error error) {
  return std::move(error).with_context(group.where);
}

Result<void> check_names(const SlurmTopology& topology) {
  std::set<std::string_view> names;
  for (const Group& group : topology.groups) {
    if (!names.insert(group.name).second) {
      return fail(Code::kInvalidUsage, "{}: {} '{}' is given twice", group.where, kind_of(topology),
                  printable(group.name));
    }
    if (auto nodes = parse_hostlist(group.nodes.value_or("")); !nodes) {
      return with_place(group, std::move(nodes).error());
    }
  }
  return ok();
}

/// Which switches are below which.
Result<Children> find_children(const std::vector<Group>& groups) {
  std::unordered_map<std::string_view, size_t> index;
  for (size_t at = 0; at < groups.size(); ++at) {
    index.emplace(groups[at].name, at);
  }
  Children children(groups.size());
  size_t left = kSlurmNamesMax;
  for (size_t at = 0; at < groups.size(); ++at) {
    const Group& group = groups[at];
    if (group.nodes.has_value() || !group.below.has_value()) {
      continue;
    }
    auto entries = parse_hostlist(*group.below);
    if (!entries) {
      return with_place(group, std::move(entries).error());
    }
    std::vector<std::string> names;
    for (const HostEntry& entry : entries.value()) {
      if (!entry.expand(names, left)) {
        return fail(Code::kInvalidUsage, "{}: lists of more than {} switches", group.where,
                    kSlurmNamesMax);
      }
    }
    left -= names.size();
    for (const std::string& name : names) {
      const auto found = index.find(name);
      if (found == index.end() || found->second == at) {
        return fail(Code::kInvalidUsage, "{}: switch '{}' has the child '{}', {}", group.where,
                    printable(group.name), printable(name),
                    found == index.end() ? "which no SwitchName defines" : "which is itself");
      }
      children[at].push_back(found->second);
    }
    if (names.empty()) {
      return fail(Code::kInvalidUsage, "{}: the list of switches of '{}' is empty", group.where,
                  printable(group.name));
    }
  }
  return children;
}

/// Slurm goes through the file this often for switches whose children are all known. A circle is
/// an error for it, and so is a deep tree that is written from its root down.
Result<void> check_tree(const std::vector<Group>& groups, const Children& children) {
  constexpr int kRounds = 21;
  std::vector<bool> known(groups.size());
  for (size_t at = 0; at < groups.size(); ++at) {
    known[at] = children[at].empty();
  }
  for (int round = 0; round < kRounds; ++round) {
    bool all = true;
    for (size_t at = 0; at < groups.size(); ++at) {
      known[at] = std::all_of(children[at].begin(), children[at].end(),
                              [&](size_t child) { return known[child]; });
      all = all && known[at];
    }
    if (all) {
      return ok();
    }
  }
  const auto at = static_cast<size_t>(std::find(known.begin(), known.end(), false) - known.begin());
  return fail(Code::kInvalidUsage,
              "{}: switch '{}' is in a circle, or has more than {} switches below each other that "
              "come after it in the file: Slurm takes no such file",
              groups[at].where, printable(groups[at].name), kRounds - 1);
}

/// Sizes are the smallest one times powers of two.
Result<void> check_block_sizes(const SlurmTopology& topology) {
  constexpr int64_t kFactorMax = 1 << 15;
  const std::vector<int64_t>& sizes = topology.block_sizes;
  const bool good = std::all_of(sizes.begin(), sizes.end(), [&](int64_t size) {
    const int64_t factor = sizes.front() > 0 && size > 0 ? size / sizes.front() : 0;
    return factor > 0 && factor <= kFactorMax && size % sizes.front() == 0 &&
           (factor & (factor - 1)) == 0;
  });
  if (!good) {
    return fail(Code::kInvalidUsage,
                "{}: block sizes {} are not a number of nodes and powers of two times it",
                topology.where, fmt::join(sizes, ","));
  }
  const bool has_nodes = std::any_of(topology.groups.begin(), topology.groups.end(),
                                     [](const Group& group) { return group.nodes.has_value(); });
  if (sizes.empty() && !has_nodes) {
    return fail(Code::kInvalidUsage, "{}: no block has nodes, and there are no block sizes",
                topology.where);
  }
  return ok();
}

/// The switches that become datacenters.
std::set<size_t> find_tops(const Children& children, int depth) {
  std::set<size_t> tops;
  for (size_t at = 0; at < children.size(); ++at) {
    tops.insert(at);
  }
  for (const auto& below : children) {
    for (const size_t child : below) {
      tops.erase(child);
    }
  }
  for (int level = 0; level < depth; ++level) {
    std::set<size_t> next;
    for (const size_t at : tops) {
      if (children[at].empty()) {
        next.insert(at);
      }
      next.insert(children[at].begin(), children[at].end());
    }
    tops = std::move(next);
  }
  return tops;
}

/// All groups below one, and itself.
std::set<size_t> collect(const Children& children, size_t top) {
  std::set<size_t> seen;
  std::vector<size_t> open = {top};
  while (!open.empty()) {
    const size_t at = open.back();
    open.pop_back();
    if (seen.insert(at).second) {
      open.insert(open.end(), children[at].begin(), children[at].end());
    }
  }
  return seen;
}

/// A datacenter has fewer characters to choose from than a switch.
std::string datacenter_name(std::string_view name) {
  std::string result(name.substr(0, kDatacenterNameBytesMax));
  std::replace_if(
      result.begin(), result.end(),
      [](char c) {
        return !((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                 c == '-' || c == '_' || c == '.');
      },
      '_');
  return result.empty() ? "_" : result;
}

Result<void> append_hosts(const Group& group, const std::string& datacenter, SlurmFabric* fabric) {
  PLEXUS_TRY(entries, parse_hostlist(group.nodes.value_or("")));
  for (const HostEntry& entry : entries) {
    if (entry.may_name_hosts()) {
      fabric->text += fmt::format("host {} dc {}\n", entry.to_string(), datacenter);
    } else {
      fabric->warnings.push_back(fmt::format("{}: '{}' names no host, and is left out", group.where,
                                             printable(entry.to_string())));
    }
  }
  return ok();
}

}  // namespace

Result<void> check(const SlurmTopology& topology) {
  if (topology.kind == SlurmTopology::Kind::kOther) {
    return ok();
  }
  if (topology.groups.empty()) {
    return fail(Code::kInvalidUsage, "{}: there is no {} in it", topology.where,
                topology.kind == SlurmTopology::Kind::kTree ? "switch or block" : "block");
  }
  PLEXUS_TRY(check_names(topology));
  if (topology.kind == SlurmTopology::Kind::kBlock) {
    return check_block_sizes(topology);
  }
  PLEXUS_TRY(children, find_children(topology.groups));
  return check_tree(topology.groups, children);
}

Result<SlurmFabric> make_fabric_file(const SlurmTopology& topology, int depth) {
  const std::vector<Group>& groups = topology.groups;
  Children children(groups.size());
  if (topology.kind == SlurmTopology::Kind::kTree) {
    PLEXUS_TRY(found, find_children(groups));
    children = std::move(found);
  }
  const std::set<size_t> tops = find_tops(children, depth);
  if (tops.empty() || tops.size() > kDatacentersMax) {
    return fail(Code::kInvalidUsage,
                "{}: each {} would become a datacenter, and there are {}: 1 to {} are supported{}",
                topology.where, kind_of(topology), tops.size(), kDatacentersMax,
                depth > 0 ? " (take a smaller --depth)" : "");
  }
  SlurmFabric fabric{.text = "# from Slurm's topology; add 'link DC DC gbit N ms N'\n",
                     .warnings = {}};
  std::map<std::string, std::string> names;  // datacenter -> group
  for (const size_t top : tops) {
    const std::string datacenter = datacenter_name(groups[top].name);
    const auto [same, is_new] = names.emplace(datacenter, groups[top].name);
    if (!is_new) {
      return fail(Code::kInvalidUsage,
                  "{}: '{}' and '{}' would both become the datacenter '{}': rename one of them",
                  topology.where, printable(same->second), printable(groups[top].name), datacenter);
    }
    for (const size_t at : collect(children, top)) {
      PLEXUS_TRY(append_hosts(groups[at], datacenter, &fabric));
    }
  }
  PLEXUS_TRY(parse_fabric_file(fabric.text));
  return fabric;
}

}  // namespace plexus
