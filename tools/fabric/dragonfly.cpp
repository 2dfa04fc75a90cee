// SPDX-License-Identifier: Apache-2.0
// Networks of groups of switches with links between every two groups. Dragonfly (Kim, Dally, Scott,
// Abts, "Technology-driven, highly-scalable dragonfly topology", 2008): all switches of a group are
// connected, and each has nodes and links to other groups. Dragonfly+ (Shpiner et al., 2017): a
// group consists of leaf switches with the nodes and spine switches with the links to other groups;
// each leaf is connected to each spine. Paths are shortest paths: at most one link between groups.
//
// Port k of a group (k = 0..groups-2) leads to the group k+1 places on; the ports are divided among
// the switches in blocks. Remaining global ports of a switch double its cables evenly.
#include "tools/fabric/network.hpp"

namespace plexus {
namespace {

struct Groups {
  int count;
  int switches;  // in each group: switches with global ports
  int global;    // ports per switch

  [[nodiscard]] int port_to(int from, int to) const { return (to - from - 1 + count) % count; }
  /// The switch of group `from` with the cable to group `to`.
  [[nodiscard]] int switch_to(int from, int to) const {
    return port_to(from, to) * switches / (count > 1 ? count - 1 : 1);
  }
  [[nodiscard]] int ports_used() const {
    return count > 1 ? (count - 1 + switches - 1) / switches
                     : 1;  // number for the switch with most ports
  }
  [[nodiscard]] int cables() const { return global / ports_used(); }
};

class Dragonfly final : public FabricNetwork {
 public:
  Dragonfly(const Groups& groups, int nodes_per_switch)
      : groups_(groups), per_switch_(nodes_per_switch) {}

  [[nodiscard]] int nodes() const override {
    return groups_.count * groups_.switches * per_switch_;
  }
  [[nodiscard]] int vertices() const override { return nodes() + groups_.count * groups_.switches; }

  void wire(const Wire& wire) const override {
    for (int node = 0; node < nodes(); ++node) {
      wire(node, switch_of(node), 1);
    }
    for (int group = 0; group < groups_.count; ++group) {
      for (int a = 0; a < groups_.switches; ++a) {
        for (int b = a + 1; b < groups_.switches; ++b) {
          wire(vertex(group, a), vertex(group, b), 1);
        }
      }
      for (int other = group + 1; other < groups_.count; ++other) {
        wire(gate(group, other), gate(other, group), groups_.cables());
      }
    }
  }

  void find_path(int from, int to, std::vector<int>& path) const override {
    path.push_back(from);
    if (from == to) {
      return;
    }
    walk(switch_of(from), switch_of(to), path);
    path.push_back(to);
  }

  /// The first switch of every group.
  [[nodiscard]] std::vector<int> border() const override {
    std::vector<int> firsts;
    for (int group = 0; group < groups_.count; ++group) {
      firsts.push_back(vertex(group, 0));
    }
    return firsts;
  }
  void find_path_out(int from, int /*remote*/, std::vector<int>& path) const override {
    path.push_back(from);
    walk(switch_of(from), vertex(group_of(switch_of(from)), 0), path);
  }

 private:
  [[nodiscard]] int vertex(int group, int number) const {
    return nodes() + group * groups_.switches + number;
  }
  [[nodiscard]] int switch_of(int node) const { return nodes() + node / per_switch_; }
  [[nodiscard]] int group_of(int at) const { return (at - nodes()) / groups_.switches; }
  [[nodiscard]] int gate(int from, int to) const {
    return vertex(from, groups_.switch_to(from, to));
  }

  void walk(int from, int to, std::vector<int>& path) const {
    const auto step = [&path](int at) {
      if (path.back() != at) {
        path.push_back(at);
      }
    };
    const int source = group_of(from);
    const int target = group_of(to);
    step(from);
    if (source != target) {
      step(gate(source, target));
      step(gate(target, source));
    }
    step(to);
  }

  Groups groups_;
  int per_switch_;
};

class DragonflyPlus final : public FabricNetwork {
 public:
  DragonflyPlus(const Groups& groups, int leaves, int nodes_per_leaf)
      : groups_(groups), leaves_(leaves), per_leaf_(nodes_per_leaf) {}

  [[nodiscard]] int nodes() const override { return groups_.count * leaves_ * per_leaf_; }
  [[nodiscard]] int vertices() const override {
    return nodes() + groups_.count * (leaves_ + groups_.switches);
  }

  void wire(const Wire& wire) const override {
    for (int node = 0; node < nodes(); ++node) {
      wire(node, leaf_of(node), 1);
    }
    for (int group = 0; group < groups_.count; ++group) {
      for (int leaf = 0; leaf < leaves_; ++leaf) {
        for (int number = 0; number < groups_.switches; ++number) {
          wire(first_of(group) + leaf, spine(group, number), 1);
        }
      }
      for (int other = group + 1; other < groups_.count; ++other) {
        wire(spine(group, groups_.switch_to(group, other)),
             spine(other, groups_.switch_to(other, group)), groups_.cables());
      }
    }
  }

  void find_path(int from, int to, std::vector<int>& path) const override {
    path.push_back(from);
    if (from == to) {
      return;
    }
    path.push_back(leaf_of(from));
    const int source = group_of(from);
    const int target = group_of(to);
    if (source != target) {
      path.push_back(spine(source, groups_.switch_to(source, target)));
      path.push_back(spine(target, groups_.switch_to(target, source)));
    } else if (leaf_of(from) != leaf_of(to)) {
      path.push_back(spine(source, to % groups_.switches));
    }
    if (leaf_of(from) != leaf_of(to)) {
      path.push_back(leaf_of(to));
    }
    path.push_back(to);
  }

  /// All spines.
  [[nodiscard]] std::vector<int> border() const override {
    std::vector<int> spines;
    for (int group = 0; group < groups_.count; ++group) {
      for (int number = 0; number < groups_.switches; ++number) {
        spines.push_back(spine(group, number));
      }
    }
    return spines;
  }
  void find_path_out(int from, int remote, std::vector<int>& path) const override {
    path.push_back(from);
    path.push_back(leaf_of(from));
    path.push_back(spine(group_of(from), remote % groups_.switches));
  }

 private:
  [[nodiscard]] int group_of(int node) const { return node / (leaves_ * per_leaf_); }
  [[nodiscard]] int first_of(int group) const {
    return nodes() + group * (leaves_ + groups_.switches);
  }
  [[nodiscard]] int leaf_of(int node) const {
    return first_of(group_of(node)) + node / per_leaf_ % leaves_;
  }
  [[nodiscard]] int spine(int group, int number) const {
    return first_of(group) + leaves_ + number;
  }

  Groups groups_;
  int leaves_;
  int per_leaf_;
};

Result<Groups> take_groups(FabricWords& words, std::string_view switches_key) {
  PLEXUS_TRY(count, take_count(words, "groups"));
  PLEXUS_TRY(switches, take_count(words, switches_key));
  PLEXUS_TRY(global, take_count(words, "global"));
  PLEXUS_TRY(multiply({count, count}));
  PLEXUS_TRY(multiply({count, switches, switches}));
  PLEXUS_TRY(multiply({switches, global}));
  const Groups groups{.count = count, .switches = switches, .global = global};
  if (count > 1 && groups.cables() == 0) {
    return fail(Code::kInvalidUsage,
                "{} switches with global={} have {} ports to other groups, but {} are needed",
                switches, global, switches * global, count - 1);
  }
  return groups;
}

}  // namespace

Result<std::unique_ptr<FabricNetwork>> make_dragonfly(FabricWords& words) {
  PLEXUS_TRY(groups, take_groups(words, "switches"));
  PLEXUS_TRY(nodes, take_count(words, "nodes"));
  PLEXUS_TRY(multiply({groups.count, groups.switches, nodes + 1}));
  return std::unique_ptr<FabricNetwork>(std::make_unique<Dragonfly>(groups, nodes));
}

Result<std::unique_ptr<FabricNetwork>> make_dragonfly_plus(FabricWords& words) {
  PLEXUS_TRY(groups, take_groups(words, "spines"));
  PLEXUS_TRY(leaves, take_count(words, "leaves"));
  PLEXUS_TRY(nodes, take_count(words, "nodes"));
  PLEXUS_TRY(multiply({groups.count, leaves, int64_t{nodes} + groups.switches}));
  return std::unique_ptr<FabricNetwork>(std::make_unique<DragonflyPlus>(groups, leaves, nodes));
}

}  // namespace plexus
