// SPDX-License-Identifier: Apache-2.0
#include "core/datacenter/datacenter_map.hpp"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "guest/assert.hpp"

namespace plexus {
namespace {

using IdPair = std::pair<uint64_t, uint64_t>;

/// A statement about something, and the node that made it.
template <class What>
struct Reported {
  What what;
  size_t node;
};

const char* level_name(FabricAnswer::Level level) {
  switch (level) {
    case FabricAnswer::Level::kSame:
      return "in one datacenter";
    case FabricAnswer::Level::kOther:
      return "in two datacenters";
    case FabricAnswer::Level::kDisconnected:
      return "not connected";
    default:
      return "unknown";
  }
}

/// Builds the map with datacenters in order of first appearance, then renumbers them along the
/// walk.
class MapMaker {
 public:
  explicit MapMaker(std::span<const DatacenterNode> nodes) : nodes_(nodes) {}

  Result<DatacenterMap> run() {
    const bool by_file = std::any_of(nodes_.begin(), nodes_.end(), [](const DatacenterNode& node) {
      return !node.location.datacenter.empty();
    });
    if (by_file) {
      PLEXUS_TRY(group_by_name());
      PLEXUS_TRY(take_links());
    } else {
      PLEXUS_TRY(check_nets());
      PLEXUS_TRY(collect_answers());
      PLEXUS_TRY(group_by_id());
      take_answers();
    }
    PLEXUS_TRY(walk, find_walk(map_.paths, map_.names));
    renumber(std::move(walk));
    map_.above = find_tree(map_.paths, static_cast<int>(map_.count()));
    PLEXUS_DCHECK(map_.of_node.size() == nodes_.size(), map_.of_node.size(), nodes_.size());
    return std::move(map_);
  }

 private:
  [[nodiscard]] const std::string& host(size_t node) const { return nodes_[node].host; }

  void set_count(size_t count) {
    map_.names.resize(count);
    map_.paths.assign(count * count, {});
    for (size_t datacenter = 0; datacenter < count; ++datacenter) {
      path(datacenter, datacenter).connected = true;
    }
  }
  DatacenterPath& path(size_t from, size_t to) { return map_.paths[from * map_.count() + to]; }

  Result<void> group_by_name() {
    std::map<std::string, int> number_of;
    size_t silent = nodes_.size();
    size_t named = nodes_.size();
    for (size_t node = 0; node < nodes_.size(); ++node) {
      const std::string& name = nodes_[node].location.datacenter;
      silent = name.empty() ? std::min(silent, node) : silent;
      named = name.empty() ? named : std::min(named, node);
      const auto [at, is_new] = number_of.try_emplace(name, static_cast<int>(number_of.size()));
      map_.of_node.push_back(at->second);
      if (is_new) {
        map_.names.push_back(name);
      }
    }
    if (silent < nodes_.size()) {
      return fail(Code::kInvalidUsage,
                  "host {} matches no host line of its PLEXUS_FABRIC_FILE, while host {} is in "
                  "datacenter '{}': use the same file on both, with a host line for each",
                  host(silent), host(named), nodes_[named].location.datacenter);
    }
    if (map_.names.size() > kDatacentersMax) {
      return fail(Code::kInvalidUsage, "{} datacenters are described, at most {} are supported",
                  map_.names.size(), kDatacentersMax);
    }
    const std::vector<std::string> names = map_.names;
    set_count(names.size());
    map_.names = names;
    return ok();
  }

  /// Takes the links between datacenters; all nodes at both ends of a link must state the same.
  Result<void> take_links() {
    std::map<std::pair<int, int>, Reported<DatacenterPath>> reported;
    for (size_t node = 0; node < nodes_.size(); ++node) {
      const int from = map_.of_node[node];
      for (size_t other = 0; other < map_.count(); ++other) {
        const int to = static_cast<int>(other);
        if (to == from) {
          continue;
        }
        const auto& links = nodes_[node].location.links;
        const auto at = std::find_if(links.begin(), links.end(), [&](const DatacenterLink& link) {
          return link.to == map_.names[other];
        });
        const DatacenterPath here = at == links.end() ? DatacenterPath{} : at->path;
        const auto [known, is_new] =
            reported.try_emplace(std::minmax(from, to), Reported<DatacenterPath>{here, node});
        if (!is_new && known->second.what != here) {
          return fail(Code::kInvalidUsage,
                      "the fabric files of hosts {} and {} differ in the link between '{}' and "
                      "'{}': use the same PLEXUS_FABRIC_FILE on both",
                      host(known->second.node), host(node), map_.names[static_cast<size_t>(from)],
                      map_.names[other]);
        }
        path(static_cast<size_t>(from), other) = here;
        path(other, static_cast<size_t>(from)) = here;
      }
    }
    return ok();
  }

  /// Rejects fabric ids of two networks, in which the same number means different things.
  Result<void> check_nets() {
    const DatacenterNode* first = nullptr;
    for (const DatacenterNode& node : nodes_) {
      if (node.location.fabric_ids.empty()) {
        continue;
      }
      first = first == nullptr ? &node : first;
      if (node.location.net != first->location.net) {
        return fail(Code::kInvalidUsage,
                    "host {} has the fabric ids of network '{}', host {} those of network '{}': "
                    "list the same network first in NCCL_NET_PLUGIN on both, or assign the hosts "
                    "to datacenters in a PLEXUS_FABRIC_FILE",
                    first->host, first->location.net, node.host, node.location.net);
      }
    }
    return ok();
  }

  Result<void> collect_answers() {
    for (size_t node = 0; node < nodes_.size(); ++node) {
      for (const FabricAnswer& answer : nodes_[node].answers) {
        if (answer.level == FabricAnswer::Level::kUnknown) {
          continue;
        }
        const auto [known, is_new] = answers_.try_emplace(
            IdPair(std::min(answer.from, answer.to), std::max(answer.from, answer.to)),
            Reported<FabricAnswer>{answer, node});
        if (!is_new && known->second.what.level != answer.level) {
          return fail(Code::kInvalidUsage,
                      "hosts {0} and {1} report fabrics {2:#x} and {3:#x} differently: '{4}' on "
                      "the first, '{5}' on the second; correct the net plugin's fabric ids",
                      host(known->second.node), host(node), answer.from, answer.to,
                      level_name(known->second.what.level), level_name(answer.level));
        }
      }
    }
    return ok();
  }

  [[nodiscard]] FabricAnswer::Level level(uint64_t a, uint64_t b) const {
    if (a == b) {
      return FabricAnswer::Level::kSame;
    }
    const auto at = answers_.find({std::min(a, b), std::max(a, b)});
    return at == answers_.end() ? FabricAnswer::Level::kUnknown : at->second.what.level;
  }

  /// Nodes are in one datacenter when a chain of ids of the same datacenter connects them. Nodes
  /// without an id form a datacenter of their own.
  Result<void> group_by_id() {
    const std::vector<uint64_t> ids = distinct_fabric_ids(nodes_);
    const auto place_of = [&](uint64_t id) {
      return static_cast<size_t>(std::lower_bound(ids.begin(), ids.end(), id) - ids.begin());
    };
    std::vector<size_t> group(ids.size() + 1);  // the last entry: nodes without an id
    std::iota(group.begin(), group.end(), size_t{0});
    const auto join = [&](size_t a, size_t b) {
      const size_t from = group[a];
      const size_t to = group[b];
      std::replace(group.begin(), group.end(), from, to);
    };
    for (const auto& [pair, answer] : answers_) {
      if (answer.what.level == FabricAnswer::Level::kSame) {
        join(place_of(pair.first), place_of(pair.second));
      }
    }
    for (const DatacenterNode& node : nodes_) {
      for (const uint64_t id : node.location.fabric_ids) {
        join(place_of(id), place_of(node.location.fabric_ids.front()));
      }
    }
    PLEXUS_TRY(check_groups(ids, group));
    std::map<size_t, int> number_of;
    for (const DatacenterNode& node : nodes_) {
      const auto& own = node.location.fabric_ids;
      const size_t at = group[own.empty() ? ids.size() : place_of(own.front())];
      map_.of_node.push_back(
          number_of.try_emplace(at, static_cast<int>(number_of.size())).first->second);
    }
    if (number_of.size() > kDatacentersMax) {
      return fail(Code::kInvalidUsage, "{} datacenters are described, at most {} are supported",
                  number_of.size(), kDatacentersMax);
    }
    set_count(number_of.size());
    for (size_t datacenter = 0; datacenter < map_.count(); ++datacenter) {
      map_.names[datacenter] = fmt::format("dc{}", datacenter);
    }
    return ok();
  }

  /// Rejects two ids of one chain if a network places them in two datacenters.
  Result<void> check_groups(const std::vector<uint64_t>& ids, const std::vector<size_t>& group) {
    for (const auto& [pair, answer] : answers_) {
      const auto of = [&](uint64_t id) {
        return group[static_cast<size_t>(std::lower_bound(ids.begin(), ids.end(), id) -
                                         ids.begin())];
      };
      if (answer.what.level == FabricAnswer::Level::kOther && of(pair.first) == of(pair.second)) {
        const auto owner = [&](uint64_t id) {
          const auto at =
              std::find_if(nodes_.begin(), nodes_.end(), [&](const DatacenterNode& node) {
                return std::binary_search(node.location.fabric_ids.begin(),
                                          node.location.fabric_ids.end(), id);
              });
          return at->host;
        };
        return fail(
            Code::kInvalidUsage,
            "fabrics {:#x} (host {}) and {:#x} (host {}) are reported in different datacenters, "
            "but paths over other fabrics place them in one: correct the net plugin's fabric ids",
            pair.first, owner(pair.first), pair.second, owner(pair.second));
      }
    }
    return ok();
  }

  void take_answers() {
    for (size_t from = 0; from < map_.count(); ++from) {
      for (size_t to = 0; to < map_.count(); ++to) {
        path(from, to).connected = true;  // until a network reports otherwise
      }
    }
    std::set<std::pair<int, int>> reached;
    std::set<std::pair<int, int>> denied;
    for (size_t a = 0; a < nodes_.size(); ++a) {
      for (const FabricAnswer& answer : nodes_[a].answers) {
        take_answer(answer, map_.of_node[a], reached, denied);
      }
    }
    for (const auto& [from, to] : denied) {
      if (reached.count({from, to}) == 0) {
        path(static_cast<size_t>(from), static_cast<size_t>(to)).connected = false;
        path(static_cast<size_t>(to), static_cast<size_t>(from)).connected = false;
      }
    }
  }

  void take_answer(const FabricAnswer& answer,
                   int from,
                   std::set<std::pair<int, int>>& reached,
                   std::set<std::pair<int, int>>& denied) {
    const auto target = std::find_if(nodes_.begin(), nodes_.end(), [&](const DatacenterNode& node) {
      return std::binary_search(node.location.fabric_ids.begin(), node.location.fabric_ids.end(),
                                answer.to);
    });
    if (target == nodes_.end()) {
      return;
    }
    const int to = map_.of_node[static_cast<size_t>(target - nodes_.begin())];
    if (from == to) {
      return;
    }
    if (answer.level == FabricAnswer::Level::kDisconnected) {
      denied.insert({from, to});
    } else if (answer.level == FabricAnswer::Level::kOther) {
      reached.insert({from, to});
      reached.insert({to, from});
      DatacenterPath known = answer.path;
      known.connected = true;
      path(static_cast<size_t>(from), static_cast<size_t>(to)) = known;
      path(static_cast<size_t>(to), static_cast<size_t>(from)) = known;
    }
  }

  void renumber(std::vector<int> walk) {
    std::vector<int> number(map_.count(), -1);
    int next = 0;
    for (int& datacenter : walk) {
      int& to = number[static_cast<size_t>(datacenter)];
      to = to < 0 ? next++ : to;
      datacenter = to;
    }
    PLEXUS_DCHECK(static_cast<size_t>(next) == map_.count(), next,
                  map_.count());  // all are visited
    DatacenterMap renamed;
    renamed.visits = std::move(walk);
    renamed.names.resize(map_.count());
    renamed.paths.resize(map_.paths.size());
    for (size_t from = 0; from < map_.count(); ++from) {
      const auto new_from = static_cast<size_t>(number[from]);
      renamed.names[new_from] = map_.names[from];
      for (size_t to = 0; to < map_.count(); ++to) {
        renamed.paths[new_from * map_.count() + static_cast<size_t>(number[to])] = path(from, to);
      }
    }
    for (const int datacenter : map_.of_node) {
      renamed.of_node.push_back(number[static_cast<size_t>(datacenter)]);
    }
    map_ = std::move(renamed);
  }

  std::span<const DatacenterNode> nodes_;
  DatacenterMap map_;
  std::map<IdPair, Reported<FabricAnswer>> answers_;  // the lower id first
};

}  // namespace

bool DatacenterMap::meshed() const {
  return std::all_of(paths.begin(), paths.end(),
                     [](const DatacenterPath& path) { return path.connected; });
}

std::vector<uint64_t> distinct_fabric_ids(std::span<const DatacenterNode> nodes) {
  std::set<uint64_t> ids;
  for (const DatacenterNode& node : nodes) {
    ids.insert(node.location.fabric_ids.begin(), node.location.fabric_ids.end());
  }
  return {ids.begin(), ids.end()};
}

Result<DatacenterMap> make_datacenter_map(std::span<const DatacenterNode> nodes) {
  if (nodes.empty()) {
    return fail(Code::kInvalidArgument, "no node to map");
  }
  return MapMaker(nodes).run();
}

}  // namespace plexus
