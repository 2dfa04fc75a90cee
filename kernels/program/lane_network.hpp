// SPDX-License-Identifier: Apache-2.0
// `LaneNetwork`: the lanes of all ranks and the connections between them, as a Kahn network with
// bounded channels. run() executes it once with a callback for every step; it tracks slots and
// order, not values.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "kernels/program/program.hpp"

namespace plexus {

class LaneNetwork {
 public:
  static constexpr uint32_t kNoLane = UINT32_MAX;
  static constexpr uint64_t kNoLimit = uint64_t{1} << 40;  // of slots

  /// A lane of a rank. Lanes are numbered over all ranks.
  struct LaneState {
    int rank = -1;
    int lane = -1;
    const Lane* steps = nullptr;
    size_t next = 0;  // step
    bool queued = false;
  };
  /// A connection between two ranks. Each end belongs to one lane, so its order is program order.
  /// `sent`, `taken`: chunks. A message of several occupies one slot.
  struct Connection {
    int source = -1;
    int target = -1;
    int number = 0;  // Lane::connection
    uint32_t send_lane = kNoLane;
    uint32_t recv_lane = kNoLane;
    uint32_t sent = 0;
    uint32_t taken = 0;
    uint32_t messages = 0;  // sent and not taken
  };

  /// `programs` must outlive the network and be well-formed (check_shape).
  explicit LaneNetwork(std::span<const Program> programs);

  /// Empty, or a sentence about a connection whose end two lanes use, or whose ends divide what it
  /// carries into different messages.
  [[nodiscard]] const std::string& problem() const { return problem_; }

  /// Executes the network once with `slots` slots per connection. `on_step(lane)` runs the lane's
  /// next step: the chunk that it takes from a connection has number `taken`, the one that it sends
  /// has number `sent`; returning false ends the execution. The steps of a message run one right
  /// after the other. True: all lanes ended.
  bool run(uint64_t slots, const std::function<bool(uint32_t lane)>& on_step);
  /// After a run() that did not end: which lanes wait for what, and the cycle that they wait in.
  [[nodiscard]] std::string describe_deadlock(uint64_t slots) const;

  [[nodiscard]] std::span<const LaneState> lanes() const { return lanes_; }
  [[nodiscard]] std::span<const Connection> connections() const { return connections_; }
  [[nodiscard]] const Step& next_step(const LaneState& lane) const {
    return lane.steps->steps[lane.next];
  }
  [[nodiscard]] uint32_t first_lane(int rank) const {
    return first_lanes_[static_cast<size_t>(rank)];
  }
  [[nodiscard]] uint32_t lane_count(int rank) const {
    return first_lane(rank + 1) - first_lane(rank);
  }
  /// Connections of a step, in the order of its peers.
  [[nodiscard]] std::span<const uint32_t> recv_connections(int rank, const Step& step) const;
  [[nodiscard]] std::span<const uint32_t> send_connections(int rank, const Step& step) const;
  /// Whether a step of the rank waits for another lane.
  [[nodiscard]] bool has_after(int rank) const { return has_after_[static_cast<size_t>(rank)]; }

 private:
  enum class Wait : uint8_t { kNothing, kAfter, kMessage, kSlot };
  struct Blocked {
    Wait wait;
    uint32_t connection;
  };

  // [source, target, number]
  using ConnectionIndex = std::unordered_map<uint64_t, uint32_t>;

  void connect(const Program& program, ConnectionIndex& index);
  uint32_t find_or_add(int source, int target, int number, ConnectionIndex& index);
  void take_ends(uint32_t lane, const Step& step);
  void check_messages();
  [[nodiscard]] Blocked find_blocked(const LaneState& lane, uint64_t slots) const;
  /// The lane that a blocked lane waits for; kNoLane: there is none.
  [[nodiscard]] uint32_t find_awaited(const LaneState& lane, uint64_t slots) const;
  [[nodiscard]] bool has_ended(const LaneState& lane) const {
    return lane.next == lane.steps->steps.size();
  }
  [[nodiscard]] std::string describe_cycle(uint32_t from, uint64_t slots) const;
  /// Runs the lane until it is blocked; false: `on_step` ended the execution.
  bool advance(uint32_t index, uint64_t slots, const std::function<bool(uint32_t lane)>& on_step);
  void finish_step(LaneState& lane);
  void wake(uint32_t lane);

  std::vector<LaneState> lanes_;
  std::vector<uint32_t> first_lanes_;  // [nranks + 1]
  std::vector<Connection> connections_;
  std::vector<std::vector<uint32_t>> peer_connections_;  // [nranks][Program::peers]
  std::vector<bool> has_after_;                          // [nranks]
  std::vector<uint32_t> queue_;                          // lanes that can proceed
  std::string problem_;
};

}  // namespace plexus
