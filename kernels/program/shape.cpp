// SPDX-License-Identifier: Apache-2.0
#include "kernels/program/shape.hpp"

#include <algorithm>
#include <vector>

#include <fmt/core.h>

#include "kernels/program/algorithms.hpp"

namespace plexus {
namespace {

const char* name(Buffer buffer) {
  constexpr const char* kNames[] = {"nothing", "input", "output", "scratch"};
  return kNames[static_cast<int>(buffer)];
}

/// Checks the steps of one rank.
class StepChecker {
 public:
  StepChecker(const Program& program, const CollectiveDefinition& definition)
      : program_(program),
        definition_(definition),
        peer_seen_(static_cast<size_t>(definition.nranks + definition.networks)) {}

  std::string check(size_t lane, const Step& step) {
    std::string what = check_peers(step);
    if (what.empty()) {
      what = check_buffer(step.source, step.source_chunk, "reads");
    }
    if (what.empty()) {
      what = check_buffer(step.target, step.target_chunk, "writes");
    }
    if (what.empty()) {
      what = check_verb(step);
    }
    return what.empty() ? check_after(lane, step) : what;
  }

  /// `before`: the step whose message continues with `step`.
  [[nodiscard]] std::string check_same_message(const Step& before, const Step& step) const {
    const auto same = [](std::span<const int> one, std::span<const int> two) {
      return std::equal(one.begin(), one.end(), two.begin(), two.end());
    };
    if (step.receives + step.sends == 0) {
      return "continues a message, and has none";
    }
    if (!same(program_.recv_peers(before), program_.recv_peers(step)) ||
        !same(program_.send_peers(before), program_.send_peers(step))) {
      return "continues a message with other peers";
    }
    if (step.after.lane >= 0) {
      return "waits in the middle of a message: only its first step may";
    }
    return step.by_address || before.by_address ? "sends by address a chunk of a message of several"
                                                : "";
  }

 private:
  std::string check_peers(const Step& step) {
    const int64_t last = int64_t{step.peers_first} + step.receives + step.sends;
    if (step.peers_first < 0 || step.receives < 0 || step.sends < 0 ||
        last > static_cast<int64_t>(program_.peers.size())) {
      return "names peers that the program does not list";
    }
    std::string what = check_peer_list(program_.recv_peers(step), "receives from");
    return what.empty() ? check_peer_list(program_.send_peers(step), "sends to") : what;
  }

  std::string check_peer_list(std::span<const int> peers, const char* verb) {
    ++stamp_;
    for (const int peer : peers) {
      if (peer < 0 || peer >= program_.nranks + definition_.networks || peer == program_.rank) {
        return fmt::format("{} rank {}, which is not a peer", verb, peer);
      }
      if (peer_seen_[static_cast<size_t>(peer)] == stamp_) {
        return fmt::format("{} rank {} twice in one step", verb, peer);
      }
      peer_seen_[static_cast<size_t>(peer)] = stamp_;
    }
    return {};
  }

  [[nodiscard]] std::string check_buffer(Buffer buffer, int chunk, const char* verb) const {
    if (buffer == Buffer::kNone) {
      return {};
    }
    if (!definition_.has(program_.rank, buffer)) {
      return fmt::format("{} {}, which this rank does not have", verb, name(buffer));
    }
    const int chunks = buffer == Buffer::kScratch   ? program_.scratch_chunks
                       : definition_.divides_buffer ? definition_.blocks(buffer)
                                                    : program_.chunks;
    if (chunk < 0 || chunk >= chunks) {
      return fmt::format("{} {} chunk {} of {}", verb, name(buffer), chunk, chunks);
    }
    return {};
  }

  [[nodiscard]] std::string check_verb(const Step& step) const {
    const bool has_source = step.source != Buffer::kNone;
    const bool has_target = step.target != Buffer::kNone;
    if (only_waits(step)) {
      return step.after.lane < 0 ? "does nothing" : "";
    }
    if (step.accumulates && (!has_source || !has_target || step.receives + step.sends > 0)) {
      return "combines its source into its target, and is not local";
    }
    if (!has_source && step.receives == 0) {
      return "has neither a source nor a sender";
    }
    if (!has_target && step.sends == 0) {
      return "has neither a target nor a receiver";
    }
    if (step.target == Buffer::kInput) {
      return "writes to the input, which belongs to the caller";
    }
    if (!has_source && step.receives > 1) {
      return "combines chunks of several senders without an operand of its own, which no executor "
             "supports";
    }
    if (step.receives + 1 > kOperandsMax) {
      return fmt::format("combines {} operands, at most {} are supported", step.receives + 1,
                         kOperandsMax);
    }
    if (step.own_position < 0 || step.own_position > (has_source ? step.receives : 0)) {
      return fmt::format("places its own operand at position {} of {}", step.own_position,
                         step.receives);
    }
    if (has_source && has_target && !definition_.is_blocked() &&
        step.source_chunk != step.target_chunk) {
      return fmt::format("moves chunk {} to chunk {}, which may have another length",
                         step.source_chunk, step.target_chunk);
    }
    return check_completes(step);
  }

  [[nodiscard]] std::string check_completes(const Step& step) const {
    if (!step.completes || definition_.nranks == 1) {
      return {};
    }
    if (!is_reduction(definition_.collective)) {
      return "completes a value in a collective without a reduction";
    }
    if (step.receives == 0 && step.target == Buffer::kNone) {
      return "completes a value in place, in the source";
    }
    return {};
  }

  [[nodiscard]] std::string check_after(size_t lane, const Step& step) const {
    if (step.after.lane < 0) {
      return {};
    }
    const auto other = static_cast<size_t>(step.after.lane);
    if (other >= program_.lanes.size() || other == lane || step.after.step < 0 ||
        static_cast<size_t>(step.after.step) >= program_.lanes[other].steps.size()) {
      return fmt::format("waits for step {} of lane {}, which is not a step of another lane",
                         step.after.step, step.after.lane);
    }
    return {};
  }

  const Program& program_;
  const CollectiveDefinition& definition_;
  // [nranks + networks] stamp of the last list that contained the peer
  std::vector<uint32_t> peer_seen_;
  uint32_t stamp_ = 0;
};

std::string check_program(const Program& program, const CollectiveDefinition& definition) {
  StepChecker checker(program, definition);
  for (size_t lane = 0; lane < program.lanes.size(); ++lane) {
    if (const int number = program.lanes[lane].connection;
        number < 0 || number >= kConnectionsMax) {
      return fmt::format("rank {}, lane {}: connection {} of {}", program.rank, lane, number,
                         kConnectionsMax);
    }
    const std::vector<Step>& steps = program.lanes[lane].steps;
    for (size_t step = 0; step < steps.size(); ++step) {
      std::string what = checker.check(lane, steps[step]);
      if (what.empty() && step > 0 && steps[step - 1].with_next) {
        what = checker.check_same_message(steps[step - 1], steps[step]);
      }
      if (!what.empty()) {
        return fmt::format("rank {}, lane {}, step {}: {}", program.rank, lane, step, what);
      }
    }
    if (!steps.empty() && steps.back().with_next) {
      return fmt::format("rank {}, lane {}, step {}: its message continues behind the last step",
                         program.rank, lane, steps.size() - 1);
    }
  }
  return {};
}

}  // namespace

std::string check_shape(std::span<const Program> programs, const CollectiveDefinition& definition) {
  if (definition.root < 0 || definition.root >= definition.nranks) {
    return fmt::format("root {} is not one of the {} ranks", definition.root, definition.nranks);
  }
  if (is_point_to_point(definition.collective) && definition.nranks > 2) {
    return fmt::format("a send and its receive need the programs of 2 ranks, not {}",
                       definition.nranks);
  }
  for (size_t rank = 0; rank < programs.size(); ++rank) {
    const Program& program = programs[rank];
    if (program.rank != static_cast<int>(rank) || program.nranks != definition.nranks) {
      return fmt::format("program {} of {} claims to be rank {} of {}", rank, definition.nranks,
                         program.rank, program.nranks);
    }
    if (program.chunks != definition.chunks ||
        program.scratch_chunks != definition.scratch_chunks) {
      return fmt::format("rank {}: {} chunks and {} of scratch, but rank 0 has {} and {}", rank,
                         program.chunks, program.scratch_chunks, definition.chunks,
                         definition.scratch_chunks);
    }
    if (program.divides_buffer != definition.divides_buffer ||
        program.shares_scratch != definition.shares_scratch) {
      return fmt::format("rank {}: its chunks or scratch mean something else than rank 0's", rank);
    }
  }
  if (definition.chunks < 1 ||
      (definition.has_blocks() &&
       (definition.divides_buffer ? definition.chunks % definition.nranks != 0
                                  : definition.chunks != definition.nranks))) {
    return fmt::format("{} chunks for {} ranks", definition.chunks, definition.nranks);
  }
  for (const Program& program : programs) {
    std::string what = check_program(program, definition);
    if (!what.empty()) {
      return what;
    }
  }
  return {};
}

}  // namespace plexus
