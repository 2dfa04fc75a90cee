// SPDX-License-Identifier: Apache-2.0
#include "kernels/program/verify.hpp"

#include <algorithm>
#include <iterator>
#include <map>
#include <numeric>
#include <utility>
#include <vector>

#include <fmt/core.h>

#include "kernels/program/cost.hpp"
#include "kernels/program/definition.hpp"
#include "kernels/program/expressions.hpp"
#include "kernels/program/happens_before.hpp"
#include "kernels/program/in_place.hpp"
#include "kernels/program/lane_network.hpp"
#include "kernels/program/network_peer.hpp"
#include "kernels/program/shape.hpp"
#include "kernels/program/symbolic_memory.hpp"

namespace plexus {
namespace {

/// A chunk in flight.
struct Message {
  uint32_t value;
  int length_of;   // the chunk index, or the block, whose length it has
  int depth;       // messages on the longest chain that ends with this one
  bool delivered;  // the sender may store it in the same chunk of the receiver's output
  StepEvent sent;
  HappensBefore::Clock known;  // at the sender; dropped when the message is taken
};

/// What the steps that wait for a step take over from it.
struct Awaited {
  int depth = 0;
  HappensBefore::Clock known;
};

/// One execution of all programs on symbolic values.
class Execution {
 public:
  Execution(const CollectiveDefinition& definition,
            std::span<const Program> programs,
            LaneNetwork* network)
      : definition_(definition),
        programs_(programs),
        network_(*network),
        expressions_(definition.nranks, definition.chunks, definition.divides_buffer),
        order_(network->lanes().size()),
        memory_(definition, *network, order_, expressions_),
        messages_(network->connections().size()),
        depths_(network->lanes().size()) {
    for (const auto& lane : network_.lanes()) {
      for (const Step& step : lane.steps->steps) {
        if (step.after.lane >= 0) {
          awaited_[{network_.first_lane(lane.rank) + static_cast<uint32_t>(step.after.lane),
                    step.after.step}] = {};
        }
      }
    }
  }

  /// Empty, or a sentence that says what is wrong.
  std::string run(uint64_t slots) {
    const bool ended = network_.run(slots, [&](uint32_t lane) { return run_step(lane); });
    if (!problem_.empty()) {
      return problem_;
    }
    if (!ended) {
      return network_.describe_deadlock(slots);
    }
    const std::string left = check_connections();
    const std::string outputs = left.empty() ? check_outputs() : left;
    return outputs.empty() ? length_problem_ : outputs;
  }

  [[nodiscard]] bool same_order() const { return same_order_; }
  [[nodiscard]] int rounds() const {
    return depths_.empty() ? 0 : *std::max_element(depths_.begin(), depths_.end());
  }

 private:
  [[nodiscard]] const LaneNetwork::LaneState& lane(StepEvent now) const {
    return network_.lanes()[now.lane];
  }

  bool run_step(uint32_t index) {
    const LaneNetwork::LaneState& lane = network_.lanes()[index];
    const Step& step = network_.next_step(lane);
    const StepEvent now = {index, static_cast<uint32_t>(lane.next + 1)};
    check_block(now, step);
    if (step.after.lane >= 0) {
      wait_for(now, step.after);
    }
    const uint32_t value = make_value(now, step, take_all(now, step));
    if (problem_.empty() && step.target != Buffer::kNone && !is_copy_to_itself(now, step)) {
      fail(now, memory_.write(now, step.target, step.target_chunk, value));
    }
    if (problem_.empty()) {
      send_all(now, step, value);
    }
    if (network_.has_after(lane.rank)) {
      const auto at = awaited_.find({index, static_cast<int>(lane.next)});
      if (at != awaited_.end()) {
        at->second = {depths_[index], order_.clock(index)};
      }
    }
    return problem_.empty();
  }

  /// A step of a program that divides the buffer moves nothing in place, as executors see.
  [[nodiscard]] bool is_copy_to_itself(StepEvent now, const Step& step) const {
    const int rank = lane(now).rank;
    return definition_.divides_buffer && !is_reduction(definition_.collective) &&
           step.receives + step.sends == 0 && !step.accumulates &&
           definition_.cell(rank, step.source, step.source_chunk) ==
               definition_.cell(rank, step.target, step.target_chunk);
  }

  void wait_for(StepEvent now, const After& after) {
    const uint32_t other = network_.first_lane(lane(now).rank) + static_cast<uint32_t>(after.lane);
    const Awaited& awaited = awaited_.at({other, after.step});
    order_.learn(now.lane, {other, static_cast<uint32_t>(after.step) + 1}, awaited.known);
    depths_[now.lane] = std::max(depths_[now.lane], awaited.depth);
  }

  /// The values that arrive, in the order of the peers.
  const std::vector<uint32_t>& take_all(StepEvent now, const Step& step) {
    arrived_.clear();
    for (const uint32_t connection : network_.recv_connections(lane(now).rank, step)) {
      Message& message = messages_[connection][network_.connections()[connection].taken];
      const int length = length_of(lane(now).rank, step);
      if (message.length_of != length) {
        const std::string what =
            fmt::format("receives chunk {} from rank {} as chunk {}, which may have another length",
                        message.length_of, network_.connections()[connection].source, length);
        if (!definition_.is_blocked()) {
          fail(now, what);
        } else if (has_counts()) {
          note_length(now, what);
        }
      }
      arrived_.push_back(message.value);
      depths_[now.lane] = std::max(depths_[now.lane], message.depth);
      if (message.delivered) {
        fail(now, check_delivery(now, step, message));
      }
      order_.learn(now.lane, message.sent, message.known);
      message.known = nullptr;
      memory_.take(now, connection);
    }
    return arrived_;
  }

  /// The receiver must do nothing else with the chunk than store it where the sender did.
  [[nodiscard]] std::string check_delivery(StepEvent now,
                                           const Step& step,
                                           const Message& message) const {
    if (step.receives != 1 || step.source != Buffer::kNone || step.target != Buffer::kOutput ||
        step.target_chunk != message.length_of) {
      return fmt::format("does not store the result, chunk {}, at its place", message.length_of);
    }
    return memory_.check_delivery(lane(now).rank, step.target_chunk, message.sent, message.known);
  }

  /// Whether the blocks may have counts of their own (plexusAllGatherV, plexusReduceScatterV).
  [[nodiscard]] bool has_counts() const {
    return !definition_.divides_buffer && definition_.nranks > 1 &&
           (definition_.collective == Collective::kAllGather ||
            definition_.collective == Collective::kReduceScatter);
  }

  /// As in the executor, a verb without local memory is as long as that chunk of the output.
  [[nodiscard]] int length_of(int rank, const Step& step) const {
    const bool has_source = step.source != Buffer::kNone;
    const int chunk = has_source ? step.source_chunk : step.target_chunk;
    return has_counts() ? programs_[static_cast<size_t>(rank)].block_of(
                              has_source ? step.source : step.target, chunk)
                        : chunk;
  }

  /// A step moves one rank's block: what it reads is as long as where it stores it.
  void check_block(StepEvent now, const Step& step) {
    if (!has_counts() || only_waits(step)) {
      return;
    }
    const int rank = lane(now).rank;
    const int block = length_of(rank, step);
    const int stored = step.target == Buffer::kNone ? block
                                                    : programs_[static_cast<size_t>(rank)].block_of(
                                                          step.target, step.target_chunk);
    if (block < 0 || stored != block) {
      note_length(
          now,
          fmt::format("moves block {} as block {}: with counts of their own, ranks' blocks have "
                      "different lengths (At::block says which one a scratch chunk holds)",
                      block, stored));
    }
  }

  uint32_t make_value(StepEvent now, const Step& step, const std::vector<uint32_t>& arrived) {
    uint32_t own = Expressions::kUndefined;
    if (step.source != Buffer::kNone) {
      fail(now, memory_.read(now, step.source, step.source_chunk, &own));
    }
    uint32_t value = Expressions::kUndefined;
    if (step.accumulates) {
      fail(now, memory_.read(now, step.target, step.target_chunk, &value));
    }
    for (size_t i = 0; i <= arrived.size() && problem_.empty(); ++i) {
      if (own != Expressions::kUndefined && static_cast<int>(i) == step.own_position) {
        value = combine(now, value, own);
      }
      if (i < arrived.size()) {
        value = combine(now, value, arrived[i]);
      }
    }
    return step.completes && problem_.empty() ? complete(now, value) : value;
  }

  uint32_t combine(StepEvent now, uint32_t value, uint32_t operand) {
    if (value == Expressions::kUndefined) {
      return operand;
    }
    if (!is_reduction(definition_.collective)) {
      fail(now, "combines chunks in a collective without a reduction");
    }
    if (expressions_.is_complete(value) || expressions_.is_complete(operand)) {
      const bool first = expressions_.is_complete(value);
      fail(now, fmt::format("combines a value that is already complete with {}",
                            expressions_.describe(first ? operand : value)));
    }
    return expressions_.combine(value, operand);
  }

  uint32_t complete(StepEvent now, uint32_t value) {
    if (!is_reduction(definition_.collective)) {
      return value;  // a single rank's copy is the same for all collectives
    }
    if (expressions_.is_complete(value)) {
      fail(now, "completes a value that is already complete");
    } else if (expressions_.find_whole_block(value) < 0) {
      fail(now, fmt::format("completes a value that is {}", expressions_.describe(value)));
    }
    return expressions_.complete(value);
  }

  void send_all(StepEvent now, const Step& step, uint32_t value) {
    const int rank = lane(now).rank;
    const bool at_target = step.target != Buffer::kNone;
    const bool has_home = at_target || step.receives == 0;  // else the value is made in the slot
    for (const uint32_t connection : network_.send_connections(rank, step)) {
      if (has_home && step.by_address) {
        fail(now, memory_.pass_address(now, at_target ? step.target : step.source,
                                       at_target ? step.target_chunk : step.source_chunk,
                                       connection, network_.connections()[connection].sent));
      }
      messages_[connection].push_back({value, length_of(rank, step), depths_[now.lane] + 1,
                                       delivers(step) && !definition_.divides_buffer, now,
                                       order_.clock(now.lane)});
    }
  }

  void fail(StepEvent now, const std::string& what) {
    if (!what.empty() && problem_.empty()) {
      problem_ = at(now, what);
    }
  }
  /// What is wrong only where ranks have counts of their own: told if nothing else is.
  void note_length(StepEvent now, const std::string& what) {
    length_problem_ = length_problem_.empty() ? at(now, what) : length_problem_;
  }
  [[nodiscard]] std::string at(StepEvent now, const std::string& what) const {
    return fmt::format("rank {}, lane {}, step {}: {}", lane(now).rank, lane(now).lane,
                       now.number - 1, what);
  }

  [[nodiscard]] std::string check_connections() const {
    for (const auto& connection : network_.connections()) {
      if (connection.sent != connection.taken) {
        return fmt::format("rank {} sends {} chunks to rank {}, which receives {}",
                           connection.source, connection.sent, connection.target, connection.taken);
      }
    }
    return {};
  }

  std::string check_outputs() {
    for (int rank = 0; rank < definition_.nranks; ++rank) {
      if (const int chunk = memory_.find_unread_scratch(rank); chunk >= 0) {
        return fmt::format("rank {}: stores a value in scratch chunk {} that is never read", rank,
                           chunk);
      }
    }
    const int blocks = definition_.blocks(Buffer::kOutput);
    for (int chunk = 0; chunk < blocks; ++chunk) {
      uint32_t first = Expressions::kUndefined;  // the first rank's value
      for (int rank = 0; rank < definition_.nranks; ++rank) {
        if (!definition_.has_output(rank)) {
          continue;
        }
        const uint32_t value = memory_.output(rank, chunk);
        const Contribution expected = definition_.expected(rank, chunk);
        if (!is_as_defined(value, expected)) {
          return fmt::format("rank {}: output chunk {} holds {}, expected {}", rank, chunk,
                             expressions_.describe(value), describe(expected));
        }
        first = rank == 0 ? value : first;
        if (definition_.collective == Collective::kAllReduce && value != first) {
          same_order_ = false;
        }
        if (!same_order_ && !definition_.divides_buffer) {
          return fmt::format(
              "rank {}: output chunk {} is combined in another order than on rank 0, so that "
              "its bits may differ",
              rank, chunk);
        }
      }
    }
    return {};
  }

  bool is_as_defined(uint32_t value, const Contribution& expected) {
    if (is_reduction(definition_.collective)) {
      return expressions_.is_complete(value) &&
             expressions_.find_whole_block(value) == expected.block;
    }
    return value == expressions_.contribution(expected.rank, expected.block);
  }

  [[nodiscard]] std::string describe(const Contribution& expected) const {
    return is_reduction(definition_.collective)
               ? fmt::format("all ranks' chunk {}, complete", expected.block)
               : fmt::format("rank {}'s chunk {}", expected.rank, expected.block);
  }

  const CollectiveDefinition& definition_;
  std::span<const Program> programs_;
  LaneNetwork& network_;
  Expressions expressions_;
  HappensBefore order_;
  SymbolicMemory memory_;
  std::vector<std::vector<Message>> messages_;           // [connections]
  std::vector<int> depths_;                              // [lanes]
  std::map<std::pair<uint32_t, int>, Awaited> awaited_;  // (lane, step) that an `after` names
  std::vector<uint32_t> arrived_;
  std::string problem_;
  std::string length_problem_;
  bool same_order_ = true;
};

/// Differences between the table's cost and the programs'; empty: none.
std::string compare_cost(const Cost& cost, const VerifyResult& result) {
  const struct {
    const char* what;
    int64_t found;
    int64_t expected;
  } costs[] = {{"chunks", result.chunks, cost.chunks},
               {"rounds", result.rounds, cost.rounds},
               {"chunks moved at a rank", result.chunks_moved, cost.chunks_moved},
               {"chunks sent in total", result.chunks_in_all, cost.chunks_in_all},
               {"chunks combined at a rank", result.chunks_reduced, cost.chunks_reduced}};
  for (const auto& each : costs) {
    if (each.found != each.expected) {
      return fmt::format("has {} {}, but the table says {}", each.found, each.what, each.expected);
    }
  }
  return {};
}

/// The fewest slots with which the programs end. Requires that they end with `slots`.
uint64_t find_slots_needed(LaneNetwork& network, uint64_t slots) {
  uint64_t needed = 1;
  while (needed < slots && !network.run(needed, [](uint32_t) { return true; })) {
    ++needed;
  }
  return needed;
}

std::string check_size(std::span<const Program> programs, uint64_t slots) {
  if (programs.empty()) {
    return "there are no programs";
  }
  if (slots == 0) {
    return "a connection needs at least one slot";
  }
  const uint64_t nranks = programs.size();
  if (programs[0].chunks > 0 &&
      nranks * static_cast<uint64_t>(programs[0].chunks) > Expressions::kContributionsMax) {
    return fmt::format("{} ranks with {} chunks each exceed what this proof can count", nranks,
                       programs[0].chunks);
  }
  return {};
}

/// Positions at which the hosts begin.
std::vector<int> list_nodes(const VerifyInput& input) {
  std::vector<int> nodes;
  for (int place = 0; place < input.nranks; place += input.ranks_per_node) {
    nodes.push_back(place);
  }
  return nodes;
}

RankPlacement placement_of(const VerifyInput& input) {
  return {.nranks = input.nranks,
          .nodes = static_cast<int>(list_nodes(input).size()),
          .ranks_per_node_max = std::min(input.ranks_per_node, input.nranks),
          .heads = input.heads};
}

std::vector<Program> record_programs(const VerifyInput& input) {
  const std::vector<int> nodes = list_nodes(input);
  const bool has_hosts = input.algorithm->network_cost != nullptr;
  const bool is_pair = is_point_to_point(input.algorithm->collective);
  std::vector<int> ring(static_cast<size_t>(is_pair ? std::min(input.nranks, 2) : input.nranks));
  std::iota(ring.begin(), ring.end(), 0);
  std::vector<Program> programs;
  programs.reserve(ring.size());
  for (const int rank : ring) {
    const Algorithm* const algorithm =
        is_pair ? find_algorithm(rank == 0 ? "send" : "recv") : input.algorithm;
    programs.push_back(algorithm->record(
        {.rank = rank,
         .ring = ring,
         .root = is_pair ? 1 - rank : input.root,
         .variant = input.variant,
         .nodes = has_hosts ? std::span<const int>(nodes) : std::span<const int>(),
         .datacenters = input.datacenters,
         .heads = input.heads,
         .joins = input.joins}));
  }
  return programs;
}

std::string compare_messages(std::span<const Program> programs, const JoinedForm& form) {
  const size_t most = chunks_of_longest_message(programs);
  const int expected = form.chunks_of_message(static_cast<int>(programs.size()));
  return static_cast<int>(most) == expected
             ? ""
             : fmt::format("has messages of {} chunks, but the table says {}", most, expected);
}

}  // namespace

bool has_in_place(Collective collective) { return !is_point_to_point(collective); }

VerifyResult verify_programs(std::span<const Program> recorded,
                             Collective collective,
                             int root,
                             bool in_place,
                             uint64_t slots,
                             int networks) {
  VerifyResult result;
  result.reason = check_size(recorded, slots);
  if (!result.reason.empty()) {
    return result;
  }
  std::vector<Program> staged;
  if (in_place && stages_input(collective)) {
    std::transform(recorded.begin(), recorded.end(), std::back_inserter(staged), stage_input);
  }
  const std::span<const Program> programs = staged.empty() ? recorded : std::span(staged);
  const CollectiveDefinition definition = {.collective = collective,
                                           .nranks = static_cast<int>(programs.size()),
                                           .root = root,
                                           .in_place = in_place && has_in_place(collective),
                                           .chunks = programs[0].chunks,
                                           .scratch_chunks = programs[0].scratch_chunks,
                                           .networks = networks,
                                           .divides_buffer = programs[0].divides_buffer,
                                           .shares_scratch = programs[0].shares_scratch};
  result.chunks = programs[0].chunks;
  for (const Program& program : programs) {
    result.steps += program.step_count();
    result.lanes = std::max(result.lanes, static_cast<int>(program.lanes.size()));
  }
  result.reason = check_shape(programs, definition);
  if (!result.reason.empty()) {
    return result;
  }
  std::vector<Program> with_networks;  // including the networks' programs, if the network reduces
  if (networks > 0) {
    with_networks.assign(programs.begin(), programs.end());
    for (int number = 0; number < networks; ++number) {
      with_networks.push_back(network_program(programs, number));
    }
  }
  LaneNetwork network(networks > 0 ? std::span<const Program>(with_networks) : programs);
  result.reason = network.problem();
  if (!result.reason.empty()) {
    return result;
  }
  Execution execution(definition, programs, &network);
  result.reason = execution.run(slots);
  result.proved = result.reason.empty();
  result.same_order = execution.same_order();
  if (result.proved) {
    result.rounds = execution.rounds();
    result.chunks_moved = count_chunks_moved(network, definition.nranks);
    result.chunks_in_all = count_chunks_in_all(network);
    result.chunks_reduced = count_chunks_reduced(programs);
    result.slots_needed = find_slots_needed(network, slots);
  }
  return result;
}

VerifyResult verify(const VerifyInput& input) {
  const int nranks = input.nranks;
  if (nranks < 1 || input.root < 0 || input.root >= nranks) {
    VerifyResult result;
    result.reason = fmt::format("root {} is not one of the {} ranks", input.root, nranks);
    return result;
  }
  if (const int last = (nranks - 1) % input.ranks_per_node + 1;
      input.heads < 1 || input.heads > last) {
    VerifyResult result;
    result.reason =
        fmt::format("{} heads on a host of {} rank{}", input.heads, last, last == 1 ? "" : "s");
    return result;
  }
  const bool is_pair = is_point_to_point(input.algorithm->collective);
  const std::vector<Program> programs = record_programs(input);
  const int networks = input.algorithm->network_cost != nullptr ? count_networks(programs) : 0;
  VerifyResult result =
      verify_programs(programs, input.algorithm->collective, is_pair ? 0 : input.root,
                      input.in_place, input.slots, networks);
  if (result.proved && nranks > 1 && !input.algorithm->for_datacenters) {
    result.reason =
        compare_cost(cost_of(*input.algorithm, placement_of(input), input.joins), result);
    if (result.reason.empty() && input.joins) {
      result.reason = compare_messages(programs, input.algorithm->joined);
    }
    result.proved = result.reason.empty();
  }
  return result;
}

}  // namespace plexus
