// SPDX-License-Identifier: Apache-2.0
#include "kernels/program/cost.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <utility>

#include "kernels/layout/fifo.hpp"

namespace plexus {
namespace {

/// Messages on the longest chain, and those between centres on the chain with the most of them.
struct Depth {
  int all = 0;
  int far = 0;
  void take(const Depth& other) {
    all = std::max(all, other.all);
    far = std::max(far, other.far);
  }
};

/// One execution that knows chains of messages only.
class DepthRun {
 public:
  DepthRun(LaneNetwork& network, std::span<const int> centre_of)
      : network_(network),
        centre_of_(centre_of),
        depths_(network.lanes().size()),
        messages_(network.connections().size()) {}

  Depth run() {
    network_.run(kSlots, [&](uint32_t lane) { return run_step(lane); });
    Depth deepest;
    for (const Depth& depth : depths_) {
      deepest.take(depth);
    }
    return deepest;
  }

 private:
  bool run_step(uint32_t index) {
    const LaneNetwork::LaneState& lane = network_.lanes()[index];
    const Step& step = network_.next_step(lane);
    Depth& depth = depths_[index];
    if (step.after.lane >= 0) {
      const uint32_t other =
          network_.first_lane(lane.rank) + static_cast<uint32_t>(step.after.lane);
      depth.take(done_[{other, step.after.step}]);
    }
    for (const uint32_t connection : network_.recv_connections(lane.rank, step)) {
      depth.take(messages_[connection][network_.connections()[connection].taken]);
    }
    for (const uint32_t connection : network_.send_connections(lane.rank, step)) {
      const auto& ends = network_.connections()[connection];
      const bool far = centre_of_[static_cast<size_t>(ends.source)] !=
                       centre_of_[static_cast<size_t>(ends.target)];
      messages_[connection].push_back({depth.all + 1, depth.far + (far ? 1 : 0)});
    }
    if (network_.has_after(lane.rank)) {
      done_[{index, static_cast<int>(lane.next)}] = depth;
    }
    return true;
  }

  LaneNetwork& network_;
  std::span<const int> centre_of_;  // by rank
  std::vector<Depth> depths_;       // by lane
  std::vector<std::vector<Depth>> messages_;
  std::map<std::pair<uint32_t, int>, Depth> done_;  // by lane and step
};

}  // namespace

int64_t LoopCost::far_chunks_out() const {
  const auto centres = static_cast<size_t>(std::lround(std::sqrt(far_chunks.size())));
  int64_t most = 0;
  for (size_t from = 0; from < centres; ++from) {
    const auto row = far_chunks.begin() + static_cast<std::ptrdiff_t>(from * centres);
    most = std::max(most,
                    std::accumulate(row, row + static_cast<std::ptrdiff_t>(centres), int64_t{0}));
  }
  return most;
}

int count_chunks_moved(const LaneNetwork& network, int nranks) {
  std::vector<int> sent(static_cast<size_t>(nranks));
  std::vector<int> received(sent.size());
  for (const auto& connection : network.connections()) {
    if (connection.source < nranks) {
      sent[static_cast<size_t>(connection.source)] += static_cast<int>(connection.sent);
    }
    if (connection.target < nranks) {
      received[static_cast<size_t>(connection.target)] += static_cast<int>(connection.sent);
    }
  }
  return std::max(*std::max_element(sent.begin(), sent.end()),
                  *std::max_element(received.begin(), received.end()));
}

int64_t count_chunks_in_all(const LaneNetwork& network) {
  const auto& connections = network.connections();
  return std::accumulate(
      connections.begin(), connections.end(), int64_t{0},
      [](int64_t sum, const auto& connection) { return sum + int64_t{connection.sent}; });
}

int count_chunks_reduced(std::span<const Program> programs) {
  int most = 0;
  for (const Program& program : programs) {
    int reduced = 0;
    for (const Lane& lane : program.lanes) {
      for (const Step& step : lane.steps) {
        const int operands = step.receives + (step.source != Buffer::kNone ? 1 : 0);
        reduced += std::max(operands - 1, 0);
      }
    }
    most = std::max(most, reduced);
  }
  return most;
}

LoopCost count_cost(const Algorithm& algorithm, const RecordInput& input) {
  const size_t nranks = input.ring.size();
  std::vector<int> centre_of(nranks);
  int centres = 1;
  for (size_t place = 0; place < input.centres.size(); ++place) {
    centre_of[static_cast<size_t>(input.ring[place])] = input.centres[place];
    centres = std::max(centres, input.centres[place] + 1);
  }
  std::vector<Program> programs;
  programs.reserve(nranks);
  for (size_t rank = 0; rank < nranks; ++rank) {
    RecordInput own = input;
    own.rank = static_cast<int>(rank);
    programs.push_back(algorithm.record(own));
  }
  LaneNetwork network(programs);
  const Depth depth = DepthRun(network, centre_of).run();
  LoopCost cost;
  cost.chunks = programs.front().chunks;
  cost.rounds = depth.all;
  cost.far_rounds = depth.far;
  cost.chunks_moved = count_chunks_moved(network, static_cast<int>(nranks));
  cost.chunks_in_all = count_chunks_in_all(network);
  cost.chunks_reduced = count_chunks_reduced(programs);
  cost.far_chunks.resize(static_cast<size_t>(centres) * static_cast<size_t>(centres));
  for (const auto& connection : network.connections()) {
    const auto from = static_cast<size_t>(centre_of[static_cast<size_t>(connection.source)]);
    const auto to = static_cast<size_t>(centre_of[static_cast<size_t>(connection.target)]);
    cost.far_chunks[from * static_cast<size_t>(centres) + to] +=
        from == to ? 0 : int64_t{connection.sent};
  }
  return cost;
}

}  // namespace plexus
