// SPDX-License-Identifier: Apache-2.0
#include "kernels/program/verify.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <vector>

namespace plexus {
namespace {

// Vector clocks cost nranks * lanes numbers per message: hazards are proved up to here, the rest above too.
constexpr int kHazardRanksMax = 128;

using Clocks = std::vector<uint32_t>;  // by lane of all ranks

/// A chunk's content: which contributions it holds, each as (rank << 32 | chunk), in sorted order.
struct Value {
  std::shared_ptr<const std::vector<uint64_t>> parts;  // null: undefined
  uint64_t order = 0;                                  // hash of how the parts were combined
  bool complete = false;
};

uint64_t part_of(int rank, int chunk) { return static_cast<uint64_t>(rank) << 32 | static_cast<uint32_t>(chunk); }

uint64_t mix(uint64_t a, uint64_t b) {
  uint64_t value = (a + 0x9e3779b97f4a7c15ULL) * 0xbf58476d1ce4e5b9ULL ^ (b + 0x2545f4914f6cdd1dULL) * 0x94d049bb133111ebULL;
  return value ^ (value >> 29);
}

Value single(int rank, int chunk) {
  return {std::make_shared<const std::vector<uint64_t>>(1, part_of(rank, chunk)), mix(part_of(rank, chunk), 1), false};
}

Value combine(const Value& a, const Value& b) {
  auto parts = std::make_shared<std::vector<uint64_t>>();
  parts->reserve(a.parts->size() + b.parts->size());
  std::merge(a.parts->begin(), a.parts->end(), b.parts->begin(), b.parts->end(), std::back_inserter(*parts));
  return {std::move(parts), mix(a.order, b.order), false};
}

/// What the collective means: which chunk lies where, and what it must be in the end.
struct Definition {
  Collective collective;
  int nranks;
  int root;
  bool in_place;

  /// All-gather and gather have one input block, reduce-scatter and scatter one output block,
  /// whatever the chunk index says.
  [[nodiscard]] bool one_block(Buffer buffer) const {
    if (buffer == Buffer::kInput) {
      return collective == Collective::kAllGather || collective == Collective::kGather;
    }
    return buffer == Buffer::kOutput && (collective == Collective::kReduceScatter || collective == Collective::kScatter);
  }

  /// Memory cells of a rank, so that in-place buffers share them.
  [[nodiscard]] uint64_t cell(int rank, Buffer buffer, int chunk) const {
    int index = one_block(buffer) ? 0 : chunk;
    Buffer where = buffer;
    if (in_place && nranks > 1 && where == Buffer::kInput && one_block(Buffer::kInput)) {
      where = Buffer::kOutput;  // the own block of the output
      index = rank;
    } else if (in_place && nranks > 1 && where == Buffer::kOutput && one_block(Buffer::kOutput)) {
      where = Buffer::kInput;  // the own block of the input
      index = rank;
    } else if (in_place && where == Buffer::kInput && !one_block(Buffer::kOutput)) {
      where = Buffer::kOutput;
    }
    return static_cast<uint64_t>(where) << 32 | static_cast<uint32_t>(index);
  }

  [[nodiscard]] bool has_input(int rank) const {
    switch (collective) {
      case Collective::kBroadcast:
      case Collective::kScatter:
        return rank == root;
      case Collective::kSend:
      case Collective::kRecv:
        return rank == 0;
      default:
        return true;
    }
  }
  [[nodiscard]] bool has_output(int rank) const {
    switch (collective) {
      case Collective::kReduce:
      case Collective::kGather:
        return rank == root;
      case Collective::kSend:
      case Collective::kRecv:
        return rank == nranks - 1;
      default:
        return true;
    }
  }

  /// The parts of output chunk `chunk` at `rank`.
  [[nodiscard]] std::vector<uint64_t> expected(int rank, int chunk) const {
    if (nranks == 1) {
      return {part_of(0, chunk)};
    }
    switch (collective) {
      case Collective::kAllReduce:
      case Collective::kReduce:
        return all_ranks(chunk);
      case Collective::kReduceScatter:
        return all_ranks(rank);
      case Collective::kBroadcast:
        return {part_of(root, chunk)};
      case Collective::kAllGather:
      case Collective::kGather:
        return {part_of(chunk, 0)};
      case Collective::kAllToAll:
        return {part_of(chunk, rank)};
      case Collective::kScatter:
        return {part_of(root, rank)};
      default:
        return {part_of(0, chunk)};
    }
  }
  [[nodiscard]] std::vector<uint64_t> all_ranks(int chunk) const {
    std::vector<uint64_t> parts;
    for (int rank = 0; rank < nranks; ++rank) {
      parts.push_back(part_of(rank, chunk));
    }
    return parts;
  }
};

/// Who touched a cell last, for hazards. Events are (lane of all ranks, count).
struct Event {
  size_t lane;
  uint32_t count;
};
struct Borrow {
  std::pair<int, int> connection;
  uint64_t number;  // of the chunk on that connection
};
struct Cell {
  Value value;
  std::optional<Event> written;
  std::vector<Event> read;
  std::vector<Borrow> borrowed;  // may be read by a receiver in place
};

struct Letter {
  Value value;
  int depth;
  std::shared_ptr<const Clocks> clocks;
};

struct Connection {
  std::deque<Letter> letters;
  uint64_t sent = 0;
  std::vector<Event> taken;  // by number
  int send_lane = -1;
  int recv_lane = -1;
};

struct LaneState {
  int rank;
  int lane;
  size_t step = 0;
  int depth = 0;
  Clocks clocks;
  std::vector<Clocks> history;  // after each step, where some step of the rank has an `after`
};

/// One execution of all programs.
class Execution {
 public:
  Execution(std::span<const Program> programs, const Definition& definition, uint64_t slots)
      : programs_(programs), definition_(definition), slots_(slots), memory_(programs.size()) {
    const bool hazards = definition.nranks <= kHazardRanksMax;
    for (size_t rank = 0; rank < programs.size(); ++rank) {
      first_lane_.push_back(lanes_.size());
      for (size_t lane = 0; lane < programs[rank].lanes.size(); ++lane) {
        lanes_.push_back({.rank = static_cast<int>(rank), .lane = static_cast<int>(lane), .clocks = {}, .history = {}});
      }
    }
    if (hazards) {
      for (LaneState& lane : lanes_) {
        lane.clocks.resize(lanes_.size());
      }
    }
    fill_inputs();
  }

  /// Runs to the end; an empty text is success.
  std::string run() {
    for (bool moved = true; moved;) {
      moved = false;
      for (size_t index = 0; index < lanes_.size(); ++index) {
        while (problem_.empty() && can_run(index)) {
          run_step(index);
          moved = true;
        }
        if (!problem_.empty()) {
          return problem_;
        }
      }
    }
    return check_end();
  }

  [[nodiscard]] int rounds() const { return rounds_; }
  [[nodiscard]] int chunks_sent() const {
    std::vector<int> sent(programs_.size());
    for (const auto& [ends, connection] : connections_) {
      sent[static_cast<size_t>(ends.first)] += static_cast<int>(connection.sent);
    }
    return sent.empty() ? 0 : *std::max_element(sent.begin(), sent.end());
  }

 private:
  [[nodiscard]] const Step& step_of(const LaneState& lane) const {
    return programs_[static_cast<size_t>(lane.rank)].lanes[static_cast<size_t>(lane.lane)].steps[lane.step];
  }
  [[nodiscard]] bool is_done(const LaneState& lane) const {
    return lane.step == programs_[static_cast<size_t>(lane.rank)].lanes[static_cast<size_t>(lane.lane)].steps.size();
  }
  [[nodiscard]] std::string where(const LaneState& lane) const {
    return fmt::format("rank {} lane {} step {}", lane.rank, lane.lane, lane.step);
  }
  void fail(const LaneState& lane, const std::string& what) {
    if (problem_.empty()) {
      problem_ = fmt::format("{}: {}", where(lane), what);
    }
  }

  void fill_inputs() {
    for (size_t rank = 0; rank < programs_.size(); ++rank) {
      const int number = static_cast<int>(rank);
      for (int chunk = 0; chunk < programs_[rank].chunks && definition_.has_input(number); ++chunk) {
        const int part = definition_.one_block(Buffer::kInput) ? 0 : chunk;
        memory_[rank][definition_.cell(number, Buffer::kInput, chunk)].value = single(number, part);
      }
    }
  }

  bool can_run(size_t index) {
    const LaneState& lane = lanes_[index];
    if (is_done(lane)) {
      return false;
    }
    const Step& step = step_of(lane);
    const Program& program = programs_[static_cast<size_t>(lane.rank)];
    if (step.after.lane >= 0) {
      const LaneState& other = lanes_[first_lane_[static_cast<size_t>(lane.rank)] + static_cast<size_t>(step.after.lane)];
      if (other.step <= static_cast<size_t>(step.after.step)) {
        return false;
      }
    }
    for (const int peer : program.recv_peers(step)) {
      if (connections_[{peer, lane.rank}].letters.empty()) {
        return false;
      }
    }
    for (const int peer : program.send_peers(step)) {
      if (connections_[{lane.rank, peer}].letters.size() >= slots_) {
        return false;
      }
    }
    return true;
  }

  /// One step: take letters, combine with the own chunk, store, send.
  void run_step(size_t index) {
    LaneState& lane = lanes_[index];
    const Step& step = step_of(lane);
    const Program& program = programs_[static_cast<size_t>(lane.rank)];
    if (!lane.clocks.empty()) {
      ++lane.clocks[index];
      follow_after(lane, step);
    }
    std::vector<Value> arrived;
    for (const int peer : program.recv_peers(step)) {
      arrived.push_back(take(index, peer));
    }
    Value value = make_value(index, step, arrived);
    if (!problem_.empty()) {
      return;
    }
    if (step.target != Buffer::kNone) {
      write(index, step.target, step.target_chunk, value);
    }
    for (const int peer : program.send_peers(step)) {
      send(index, peer, step, value);
    }
    ++lane.step;
    rounds_ = std::max(rounds_, lane.depth);
    if (has_after(program) && !lane.clocks.empty()) {
      lane.history.push_back(lane.clocks);
    }
  }

  static bool has_after(const Program& program) {
    return std::any_of(program.lanes.begin(), program.lanes.end(), [](const Lane& lane) {
      return std::any_of(lane.steps.begin(), lane.steps.end(), [](const Step& step) { return step.after.lane >= 0; });
    });
  }

  void follow_after(LaneState& lane, const Step& step) {
    if (step.after.lane >= 0) {
      const LaneState& other = lanes_[first_lane_[static_cast<size_t>(lane.rank)] + static_cast<size_t>(step.after.lane)];
      join_clocks(lane, other.history[static_cast<size_t>(step.after.step)]);
    }
  }
  static void join_clocks(LaneState& lane, const Clocks& clocks) {
    for (size_t i = 0; i < clocks.size(); ++i) {
      lane.clocks[i] = std::max(lane.clocks[i], clocks[i]);
    }
  }

  Value take(size_t index, int peer) {
    LaneState& lane = lanes_[index];
    Connection& connection = connections_[{peer, lane.rank}];
    if (connection.recv_lane >= 0 && connection.recv_lane != lane.lane) {
      fail(lane, fmt::format("two lanes receive from rank {}", peer));
    }
    connection.recv_lane = lane.lane;
    Letter letter = std::move(connection.letters.front());
    connection.letters.pop_front();
    lane.depth = std::max(lane.depth, letter.depth + 1);
    if (!lane.clocks.empty()) {
      join_clocks(lane, *letter.clocks);
      connection.taken.push_back({index, lane.clocks[index]});
    }
    return letter.value;
  }

  void send(size_t index, int peer, const Step& step, const Value& value) {
    LaneState& lane = lanes_[index];
    if (peer < 0 || peer >= definition_.nranks || peer == lane.rank) {
      fail(lane, fmt::format("sends to rank {}", peer));
      return;
    }
    Connection& connection = connections_[{lane.rank, peer}];
    if (connection.send_lane >= 0 && connection.send_lane != lane.lane) {
      fail(lane, fmt::format("two lanes send to rank {}", peer));
    }
    connection.send_lane = lane.lane;
    if (!lane.clocks.empty() && step.lends) {  // the chunk may travel as the address of its home
      const bool at_target = step.target != Buffer::kNone;
      const bool at_source = !at_target && step.receives == 0;
      if (at_target || at_source) {
        cell(lane.rank, at_target ? step.target : step.source, at_target ? step.target_chunk : step.source_chunk)
            .borrowed.push_back({{lane.rank, peer}, connection.sent});
      }
    }
    ++connection.sent;
    connection.letters.push_back({value, lane.depth, lane.clocks.empty() ? nullptr : std::make_shared<const Clocks>(lane.clocks)});
  }

  Cell& cell(int rank, Buffer buffer, int chunk) {
    return memory_[static_cast<size_t>(rank)][definition_.cell(rank, buffer, chunk)];
  }

  Value make_value(size_t index, const Step& step, const std::vector<Value>& arrived) {
    LaneState& lane = lanes_[index];
    std::vector<Value> operands = arrived;
    if (step.source != Buffer::kNone) {
      const auto at = std::clamp<std::ptrdiff_t>(step.own_position, 0, static_cast<std::ptrdiff_t>(operands.size()));
      operands.insert(operands.begin() + at, read(index, step.source, step.source_chunk));
    }
    if (operands.empty()) {
      fail(lane, "has neither a source nor a sender");
      return {};
    }
    for (const Value& operand : operands) {
      if (operand.parts == nullptr) {
        fail(lane, "reads an undefined chunk");
        return {};
      }
    }
    const bool reduces = is_reduction(definition_.collective);
    if (operands.size() > 1 && !reduces) {
      fail(lane, "reduces in a collective that does not");
      return {};
    }
    Value value = operands.front();
    for (size_t i = 1; i < operands.size(); ++i) {
      if (value.complete || operands[i].complete) {
        fail(lane, "reduces a value that was complete already");
        return {};
      }
      value = combine(value, operands[i]);
    }
    if (step.completes && reduces) {
      if (value.complete) {
        fail(lane, "completes a value that was complete already");
      }
      value.complete = true;
    }
    return value;
  }

  [[nodiscard]] static bool is_before(const Event& event, const LaneState& lane) {
    return event.count <= lane.clocks[event.lane];
  }

  Value read(size_t index, Buffer buffer, int chunk) {
    LaneState& lane = lanes_[index];
    Cell& from = cell(lane.rank, buffer, chunk);
    if (!lane.clocks.empty()) {
      if (from.written.has_value() && !is_before(*from.written, lane)) {
        fail(lane, fmt::format("reads chunk {} that another lane writes, in no order", chunk));
      }
      from.read.push_back({index, lane.clocks[index]});
    }
    return from.value;
  }

  void write(size_t index, Buffer buffer, int chunk, const Value& value) {
    LaneState& lane = lanes_[index];
    if (buffer == Buffer::kInput) {
      fail(lane, "writes to the input");
      return;
    }
    Cell& to = cell(lane.rank, buffer, chunk);
    if (!lane.clocks.empty()) {
      const bool unordered = (to.written.has_value() && !is_before(*to.written, lane)) ||
                             std::any_of(to.read.begin(), to.read.end(), [&](const Event& event) { return !is_before(event, lane); });
      if (unordered) {
        fail(lane, fmt::format("writes chunk {} that another lane uses, in no order", chunk));
      }
      for (const Borrow& borrow : to.borrowed) {
        const auto& taken = connections_[borrow.connection].taken;
        if (borrow.number >= taken.size() || !is_before(taken[borrow.number], lane)) {
          fail(lane, fmt::format("overwrites chunk {} that rank {} may still read in place", chunk, borrow.connection.second));
        }
      }
      to.borrowed.clear();
      to.read.clear();
      to.written = Event{index, lane.clocks[index]};
    }
    to.value = value;
  }

  std::string check_end() {
    for (const LaneState& lane : lanes_) {
      if (!is_done(lane)) {
        return fmt::format("deadlock with {} slots: {} cannot go on", slots_, where(lane));
      }
    }
    for (const auto& [ends, connection] : connections_) {
      if (!connection.letters.empty()) {
        return fmt::format("rank {} sent {} chunks to rank {} that were not received", ends.first,
                           connection.letters.size(), ends.second);
      }
    }
    return check_outputs();
  }

  std::string check_outputs() {
    std::map<int, uint64_t> order;  // of an all-reduce, by chunk
    for (size_t rank = 0; rank < programs_.size(); ++rank) {
      const int number = static_cast<int>(rank);
      for (int chunk = 0; chunk < programs_[rank].chunks && definition_.has_output(number); ++chunk) {
        const Value& value = cell(number, Buffer::kOutput, chunk).value;
        const auto expected = definition_.expected(number, chunk);
        if (value.parts == nullptr || *value.parts != expected) {
          return fmt::format("rank {} output chunk {} holds {} contributions that are not the {} of the definition",
                             number, chunk, value.parts == nullptr ? 0 : value.parts->size(), expected.size());
        }
        if (is_reduction(definition_.collective) && !value.complete) {
          return fmt::format("rank {} output chunk {} was never marked complete", number, chunk);
        }
        const auto [at, fresh] = order.emplace(chunk, value.order);
        if (definition_.collective == Collective::kAllReduce && !fresh && at->second != value.order) {
          return fmt::format("rank {} combines chunk {} in another order than rank 0: results would differ", number, chunk);
        }
      }
    }
    return {};
  }

  std::span<const Program> programs_;
  Definition definition_;
  uint64_t slots_;
  std::vector<std::map<uint64_t, Cell>> memory_;  // by rank
  std::vector<LaneState> lanes_;
  std::vector<size_t> first_lane_;  // of a rank, in lanes_
  std::map<std::pair<int, int>, Connection> connections_;
  std::string problem_;
  int rounds_ = 0;
};

std::string check_shape(std::span<const Program> programs) {
  for (const Program& program : programs) {
    for (const Lane& lane : program.lanes) {
      for (const Step& step : lane.steps) {
        const int last = step.peers_first + step.receives + step.sends;
        const bool peers_exist = step.peers_first >= 0 && step.receives >= 0 && step.sends >= 0 &&
                                 last <= static_cast<int>(program.peers.size());
        const bool chunks_exist = step.source_chunk >= 0 && step.source_chunk < program.chunks &&
                                  step.target_chunk >= 0 && step.target_chunk < program.chunks;
        const bool lane_exists = step.after.lane < static_cast<int>(program.lanes.size());
        if (!peers_exist || !chunks_exist || !lane_exists) {
          return fmt::format("rank {} has a step that names a peer, chunk or lane that is not there", program.rank);
        }
        const auto senders = program.recv_peers(step);
        for (const int peer : senders) {
          const bool twice = std::count(senders.begin(), senders.end(), peer) > 1;
          if (peer < 0 || peer >= program.nranks || peer == program.rank || twice) {
            return fmt::format("rank {} receives from rank {}, which is not there or comes twice", program.rank, peer);
          }
        }
      }
    }
  }
  return {};
}

}  // namespace

bool has_in_place(Collective collective) {
  return collective != Collective::kAllToAll && !is_point_to_point(collective);
}

VerifyResult verify_programs(std::span<const Program> programs, Collective collective, int root, bool in_place,
                             uint64_t slots) {
  VerifyResult result;
  for (const Program& program : programs) {
    result.steps += program.step_count();
    result.lanes = std::max(result.lanes, static_cast<int>(program.lanes.size()));
  }
  result.reason = check_shape(programs);
  if (!result.reason.empty()) {
    return result;
  }
  const Definition definition{collective, static_cast<int>(programs.size()), root, in_place && has_in_place(collective)};
  Execution execution(programs, definition, slots);
  result.reason = execution.run();
  result.proved = result.reason.empty();
  result.rounds = execution.rounds();
  result.chunks_sent = execution.chunks_sent();
  for (uint64_t fewer = 1; result.proved && fewer <= slots && result.slots_needed == 0; ++fewer) {
    if (fewer == slots || Execution(programs, definition, fewer).run().empty()) {
      result.slots_needed = fewer;
    }
  }
  return result;
}

VerifyResult verify(const VerifyInput& input) {
  const bool is_pair = is_point_to_point(input.algorithm->collective);
  std::vector<int> ring(static_cast<size_t>(input.nranks));
  std::iota(ring.begin(), ring.end(), 0);
  std::vector<Program> programs;
  if (is_pair) {
    programs.push_back(find_algorithm("send")->record({.rank = 0, .ring = ring, .root = 1}));
    programs.push_back(find_algorithm("recv")->record({.rank = 1, .ring = ring, .root = 0}));
  } else {
    for (const int rank : ring) {
      programs.push_back(input.algorithm->record({.rank = rank, .ring = ring, .root = input.root}));
    }
  }
  VerifyResult result =
      verify_programs(programs, is_pair ? Collective::kSend : input.algorithm->collective, input.root, input.in_place, input.slots);
  if (!result.proved || input.nranks < 2) {
    return result;
  }
  const int rounds = input.algorithm->rounds(input.nranks);
  const int sent = input.algorithm->chunks_sent(input.nranks);
  if (result.rounds != rounds || result.chunks_sent != sent) {
    result.proved = false;
    result.reason = fmt::format("takes {} rounds and sends {} chunks per rank where the table says {} and {}",
                                result.rounds, result.chunks_sent, rounds, sent);
  }
  return result;
}

}  // namespace plexus
