// SPDX-License-Identifier: Apache-2.0
#include "integrations/cudart/graph_nodes.hpp"

#include <algorithm>
#include <map>
#include <set>

namespace plexus::cudart {
namespace {

/// Where a node's work ends.
struct End {
  int lane = 0;
  int mark = 0;
};

class Assembly {
 public:
  GraphLog take(const std::vector<const GraphNode*>& sorted) {
    add_mark(0);  // the start, which lanes beside the first one wait for
    for (const GraphNode* const node : sorted) {
      add(*node);
    }
    for (const auto& [lane, node] : last_) {
      if (lane != 0) {
        add_wait(0, ends_.at(node).mark);
      }
    }
    return std::move(log_);
  }

 private:
  void add(const GraphNode& node) {
    const int lane = choose_lane(node);
    for (const GraphNode* const before : node.after) {
      if (ends_.at(before).lane != lane) {
        add_wait(lane, ends_.at(before).mark);
      }
    }
    add_all(*node.log, lane);
    ends_[&node] = {.lane = lane, .mark = add_mark(lane)};
    last_[lane] = &node;
  }
  int choose_lane(const GraphNode& node) {
    for (const GraphNode* const before : node.after) {
      const int lane = ends_.at(before).lane;
      if (last_.at(lane) == before) {
        return lane;
      }
    }
    if (last_.empty()) {
      return 0;
    }
    const int lane = log_.lanes++;
    add_wait(lane, 0);
    return lane;
  }
  /// The lanes of `log` beside its first one become new ones, which its own waits join.
  void add_all(const GraphLog& log, int lane) {
    const int lanes = log_.lanes - 1;
    const int marks = log_.marks;
    log_.lanes += log.lanes - 1;
    log_.marks += log.marks;
    for (GraphOp op : log.ops) {
      op.lane = op.lane == 0 ? lane : op.lane + lanes;
      op.mark += marks;
      log_.ops.push_back(std::move(op));
    }
  }
  int add_mark(int lane) {
    log_.ops.push_back({.kind = GraphOp::Kind::kMark, .lane = lane, .mark = log_.marks});
    return log_.marks++;
  }
  void add_wait(int lane, int mark) {
    log_.ops.push_back({.kind = GraphOp::Kind::kWait, .lane = lane, .mark = mark});
  }

  GraphLog log_;
  std::map<const GraphNode*, End> ends_;
  std::map<int, const GraphNode*> last_;  // of each lane
};

}  // namespace

std::vector<const GraphNode*> sort_nodes(const std::vector<std::shared_ptr<GraphNode>>& nodes) {
  std::vector<const GraphNode*> sorted;
  std::set<const GraphNode*> done;
  for (bool moves = true; moves;) {
    moves = false;
    for (const auto& node : nodes) {
      const bool is_next =
          done.count(node.get()) == 0 &&
          std::all_of(node->after.begin(), node->after.end(),
                      [&](const GraphNode* each) { return done.count(each) != 0; });
      if (is_next) {
        sorted.push_back(node.get());
        done.insert(node.get());
        moves = true;
      }
    }
  }
  return sorted.size() == nodes.size() ? sorted : std::vector<const GraphNode*>();
}

GraphLog assemble(const std::vector<const GraphNode*>& sorted) { return Assembly().take(sorted); }

}  // namespace plexus::cudart
