// SPDX-License-Identifier: Apache-2.0
#include "kernels/program/lane_network.hpp"

#include <algorithm>

#include <fmt/core.h>

#include "kernels/program/algorithms.hpp"

namespace plexus {

LaneNetwork::LaneNetwork(std::span<const Program> programs) {
  for (const Program& program : programs) {
    first_lanes_.push_back(static_cast<uint32_t>(lanes_.size()));
    bool waits = false;
    for (size_t lane = 0; lane < program.lanes.size(); ++lane) {
      lanes_.push_back(
          {.rank = program.rank, .lane = static_cast<int>(lane), .steps = &program.lanes[lane]});
      const auto& steps = program.lanes[lane].steps;
      waits = waits || std::any_of(steps.begin(), steps.end(),
                                   [](const Step& step) { return step.after.lane >= 0; });
    }
    has_after_.push_back(waits);
  }
  first_lanes_.push_back(static_cast<uint32_t>(lanes_.size()));
  ConnectionIndex index;
  for (const Program& program : programs) {
    connect(program, index);
  }
  for (uint32_t lane = 0; lane < lanes_.size(); ++lane) {
    for (const Step& step : lanes_[lane].steps->steps) {
      take_ends(lane, step);
    }
  }
  if (problem_.empty() && chunks_of_longest_message(programs) > 1) {
    check_messages();
  }
}

/// Both ends of a connection have to find the same chunks in its messages.
void LaneNetwork::check_messages() {
  using Sizes = std::vector<uint32_t>;  // of messages, in chunks
  std::vector<Sizes> sent(connections_.size());
  std::vector<Sizes> received(connections_.size());
  for (const LaneState& lane : lanes_) {
    const std::vector<Step>& steps = lane.steps->steps;
    for (size_t at = 0; at < steps.size(); at += steps_of_message(&steps[at])) {
      const auto chunks = static_cast<uint32_t>(steps_of_message(&steps[at]));
      for (const uint32_t connection : recv_connections(lane.rank, steps[at])) {
        received[connection].push_back(chunks);
      }
      for (const uint32_t connection : send_connections(lane.rank, steps[at])) {
        sent[connection].push_back(chunks);
      }
    }
  }
  for (size_t at = 0; at < connections_.size() && problem_.empty(); ++at) {
    const size_t both = std::min(sent[at].size(), received[at].size());
    for (size_t message = 0; message < both && problem_.empty(); ++message) {
      if (sent[at][message] != received[at][message]) {
        problem_ = fmt::format(
            "message {} from rank {} to rank {} has {} chunk{} where it is sent, and {} where it "
            "is received",
            message, connections_[at].source, connections_[at].target, sent[at][message],
            sent[at][message] == 1 ? "" : "s", received[at][message]);
      }
    }
  }
}

void LaneNetwork::connect(const Program& program, ConnectionIndex& index) {
  auto& found = peer_connections_.emplace_back(program.peers.size());
  for (const Lane& lane : program.lanes) {
    for (const Step& step : lane.steps) {
      auto at = found.begin() + step.peers_first;
      for (const int peer : program.recv_peers(step)) {
        *at++ = find_or_add(peer, program.rank, lane.connection, index);
      }
      for (const int peer : program.send_peers(step)) {
        *at++ = find_or_add(program.rank, peer, lane.connection, index);
      }
    }
  }
}

uint32_t LaneNetwork::find_or_add(int source, int target, int number, ConnectionIndex& index) {
  constexpr uint64_t kRanks = uint64_t{2} * kProgramRanksMax;  // with networks that reduce
  const uint64_t key =
      (static_cast<uint64_t>(number) * kRanks + static_cast<uint64_t>(source)) * kRanks +
      static_cast<uint64_t>(target);
  const auto [at, is_new] = index.try_emplace(key, static_cast<uint32_t>(connections_.size()));
  if (is_new) {
    connections_.push_back({.source = source, .target = target, .number = number});
  }
  return at->second;
}

void LaneNetwork::take_ends(uint32_t lane, const Step& step) {
  const int rank = lanes_[lane].rank;
  const auto take = [&](uint32_t* owner, const char* what, int peer) {
    if (*owner == kNoLane) {
      *owner = lane;
    } else if (*owner != lane && problem_.empty()) {
      problem_ = fmt::format(
          "rank {}: lanes {} and {} both {} rank {}: which chunk each gets depends on timing", rank,
          lanes_[*owner].lane, lanes_[lane].lane, what, peer);
    }
  };
  for (const uint32_t at : recv_connections(rank, step)) {
    take(&connections_[at].recv_lane, "receive from", connections_[at].source);
  }
  for (const uint32_t at : send_connections(rank, step)) {
    take(&connections_[at].send_lane, "send to", connections_[at].target);
  }
}

std::span<const uint32_t> LaneNetwork::recv_connections(int rank, const Step& step) const {
  return std::span(peer_connections_[static_cast<size_t>(rank)])
      .subspan(static_cast<size_t>(step.peers_first), static_cast<size_t>(step.receives));
}

std::span<const uint32_t> LaneNetwork::send_connections(int rank, const Step& step) const {
  return std::span(peer_connections_[static_cast<size_t>(rank)])
      .subspan(static_cast<size_t>(step.peers_first) + static_cast<size_t>(step.receives),
               static_cast<size_t>(step.sends));
}

bool LaneNetwork::run(uint64_t slots, const std::function<bool(uint32_t lane)>& on_step) {
  for (Connection& connection : connections_) {
    connection.sent = connection.taken = connection.messages = 0;
  }
  queue_.clear();
  for (uint32_t lane = 0; lane < lanes_.size(); ++lane) {
    lanes_[lane].next = 0;
    lanes_[lane].queued = false;
    wake(lane);
  }
  // In rounds: lanes that are woken in one round run in the next one.
  std::vector<uint32_t> round;
  while (!queue_.empty()) {
    round.swap(queue_);
    queue_.clear();
    for (const uint32_t index : round) {
      lanes_[index].queued = false;
      if (!advance(index, slots, on_step)) {
        return false;
      }
    }
  }
  return std::all_of(lanes_.begin(), lanes_.end(),
                     [](const LaneState& lane) { return lane.next == lane.steps->steps.size(); });
}

bool LaneNetwork::advance(uint32_t index,
                          uint64_t slots,
                          const std::function<bool(uint32_t lane)>& on_step) {
  LaneState& lane = lanes_[index];
  while (lane.next < lane.steps->steps.size() && find_blocked(lane, slots).wait == Wait::kNothing) {
    for (bool more = true; more;) {
      if (!on_step(index)) {
        return false;
      }
      more = next_step(lane).with_next;
      finish_step(lane);
    }
  }
  return true;
}

LaneNetwork::Blocked LaneNetwork::find_blocked(const LaneState& lane, uint64_t slots) const {
  const Step& step = next_step(lane);
  if (step.after.lane >= 0) {
    const LaneState& other = lanes_[first_lane(lane.rank) + static_cast<uint32_t>(step.after.lane)];
    if (other.next <= static_cast<size_t>(step.after.step)) {
      return {Wait::kAfter, 0};
    }
  }
  for (const uint32_t at : recv_connections(lane.rank, step)) {
    if (connections_[at].sent == connections_[at].taken) {
      return {Wait::kMessage, at};
    }
  }
  for (const uint32_t at : send_connections(lane.rank, step)) {
    if (connections_[at].messages >= slots) {
      return {Wait::kSlot, at};
    }
  }
  return {Wait::kNothing, 0};
}

void LaneNetwork::finish_step(LaneState& lane) {
  const Step& step = next_step(lane);
  for (const uint32_t at : recv_connections(lane.rank, step)) {
    ++connections_[at].taken;
    connections_[at].messages -= step.with_next ? 0 : 1;
    wake(connections_[at].send_lane);
  }
  for (const uint32_t at : send_connections(lane.rank, step)) {
    ++connections_[at].sent;
    connections_[at].messages += step.with_next ? 0 : 1;
    wake(connections_[at].recv_lane);
  }
  ++lane.next;
  if (has_after(lane.rank)) {
    for (uint32_t other = first_lane(lane.rank); other < first_lane(lane.rank + 1); ++other) {
      wake(other);
    }
  }
}

void LaneNetwork::wake(uint32_t lane) {
  if (lane == kNoLane || lanes_[lane].queued ||
      lanes_[lane].next == lanes_[lane].steps->steps.size()) {
    return;
  }
  lanes_[lane].queued = true;
  queue_.push_back(lane);
}

std::string LaneNetwork::describe_deadlock(uint64_t slots) const {
  size_t waiting = 0;
  const LaneState* first = nullptr;
  for (const LaneState& lane : lanes_) {
    if (!has_ended(lane)) {
      first = waiting++ == 0 ? &lane : first;
    }
  }
  if (first == nullptr) {
    return {};
  }
  const Blocked blocked = find_blocked(*first, slots);
  std::string what;
  if (blocked.wait == Wait::kAfter) {
    const After& after = next_step(*first).after;
    what = fmt::format("step {} of lane {}", after.step, after.lane);
  } else if (blocked.wait == Wait::kMessage) {
    what = fmt::format("a chunk from rank {}", connections_[blocked.connection].source);
  } else {
    what = fmt::format("a free slot to rank {}", connections_[blocked.connection].target);
  }
  return fmt::format(
      "rank {}, lane {}, step {}: waits for {} forever; {} of {} lanes are blocked{}{}",
      first->rank, first->lane, first->next, what, waiting, lanes_.size(),
      slots < kNoLimit ? fmt::format(" with {} slots", slots) : "",
      describe_cycle(static_cast<uint32_t>(first - lanes_.data()), slots));
}

uint32_t LaneNetwork::find_awaited(const LaneState& lane, uint64_t slots) const {
  const Blocked blocked = find_blocked(lane, slots);
  switch (blocked.wait) {
    case Wait::kAfter:
      return first_lane(lane.rank) + static_cast<uint32_t>(next_step(lane).after.lane);
    case Wait::kMessage:
      return connections_[blocked.connection].send_lane;
    case Wait::kSlot:
      return connections_[blocked.connection].recv_lane;
    case Wait::kNothing:
      break;
  }
  return kNoLane;
}

/// A blocked lane waits for one other lane, so that the chain of them ends in a cycle, or at a lane
/// that will not come to what is waited for.
std::string LaneNetwork::describe_cycle(uint32_t from, uint64_t slots) const {
  std::vector<uint32_t> chain;
  uint32_t at = from;
  while (at != kNoLane && !has_ended(lanes_[at]) &&
         std::find(chain.begin(), chain.end(), at) == chain.end()) {
    chain.push_back(at);
    at = find_awaited(lanes_[at], slots);
  }
  if (at == kNoLane) {
    return fmt::format("; nobody does what rank {}, lane {} waits for", lanes_[chain.back()].rank,
                       lanes_[chain.back()].lane);
  }
  if (has_ended(lanes_[at])) {
    return fmt::format("; rank {}, lane {} waits for rank {}, lane {}, which has ended",
                       lanes_[chain.back()].rank, lanes_[chain.back()].lane, lanes_[at].rank,
                       lanes_[at].lane);
  }
  constexpr size_t kShown = 8;
  const auto begin = std::find(chain.begin(), chain.end(), at);
  const auto length = static_cast<size_t>(chain.end() - begin);
  std::string text = "; a cycle:";
  for (size_t i = 0; i < std::min(length, kShown); ++i) {
    const LaneState& lane = lanes_[*(begin + static_cast<std::ptrdiff_t>(i))];
    text += fmt::format("{} rank {}, lane {}, step {}", i == 0 ? "" : " waits for", lane.rank,
                        lane.lane, lane.next);
  }
  return text + (length > kShown ? fmt::format(" and {} more", length - kShown) : "") +
         " waits for the first";
}

}  // namespace plexus
