// SPDX-License-Identifier: Apache-2.0
#include "core/tuning/choose_algorithm.hpp"

#include <algorithm>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "core/base/log.hpp"
#include "core/tuning/algorithm_selection.hpp"
#include "core/tuning/ask_tuner.hpp"
#include "core/tuning/built_in_rules.hpp"

namespace plexus {
namespace {

/// Whether it may send between any two datacenters, unlike a ring, which only uses neighbours, and
/// the tree all-reduce, which follows the tree of datacenters.
bool needs_mesh(const Algorithm& algorithm) {
  const std::span<const Algorithm> table = algorithms();
  return std::string_view(algorithm.family) != "ring" &&
         std::string_view(algorithm.name) != "tree_all_reduce" &&
         std::any_of(table.begin(), table.end(), [&](const Algorithm& other) {
           return other.collective == algorithm.collective &&
                  std::string_view(other.family) == "ring";
         });
}

/// The reason why the network cannot reduce this call; empty: it can.
std::string why_not_in_network(const Algorithm& algorithm, const ChoiceInput& input) {
  if (input.collnet == nullptr || !input.collnet->missing.empty()) {
    return input.collnet == nullptr ? "there is no collnet plugin" : input.collnet->missing;
  }
  if (input.costs != nullptr && input.costs->datacenters() > 1) {
    return "the ranks are in several datacenters";
  }
  const uint8_t kinds = input.collnet->kinds[static_cast<size_t>(input.type)];
  if ((kinds >> static_cast<unsigned>(input.kind) & 1U) == 0) {
    return "the collnet plugin does not reduce this type with this operation";
  }
  if (std::string_view(algorithm.family) == "collnetdirect" &&
      input.ranks_per_node_max > kOperandsMax) {
    return fmt::format("at most {} ranks on a host", kOperandsMax);
  }
  return "";
}

/// The reason why an algorithm from a file does not suit the call; empty: it does.
std::string why_not_recorded(const Algorithm& algorithm, const ChoiceInput& input) {
  const RecordedAlgorithm& recorded = *algorithm.recorded;
  const auto chunks = static_cast<uint64_t>(recorded.cost.chunks);
  if (input.has_blocks) {
    return "its chunks are of equal length, and the ranks' counts are not";
  }
  if (is_rooted(input.collective) && input.root != recorded.root) {
    return fmt::format("its file is for root {}", recorded.root);
  }
  if (input.size_bytes < recorded.bytes_min || input.size_bytes > recorded.bytes_max) {
    return fmt::format("its file is for {} to {} bytes", recorded.bytes_min, recorded.bytes_max);
  }
  if (input.size_bytes / input.element_bytes % chunks != 0) {
    return fmt::format("its {} chunks do not divide the elements", chunks);
  }
  return "";
}

/// The reason why the algorithm cannot be used for the call; empty: it can.
std::string why_not(const Algorithm& algorithm,
                    const ChoiceInput& input,
                    const AlgorithmFilter& filter) {
  if (!filter.allows(algorithm)) {
    return "excluded by NCCL_ALGO";
  }
  if (input.nranks > algorithm.nranks_max) {
    return fmt::format("at most {} ranks", algorithm.nranks_max);
  }
  const int datacenters = input.costs == nullptr ? 1 : input.costs->datacenters();
  if (algorithm.for_datacenters && datacenters == 1 && !filter.names(algorithm)) {
    return "all ranks are in one datacenter";
  }
  if (input.costs != nullptr && !input.costs->meshed() && needs_mesh(algorithm)) {
    return "some datacenters have no direct link";
  }
  if (input.deterministic && is_reduction(input.collective) && !algorithm.in_rank_order) {
    return "excluded by PLEXUS_DETERMINISTIC: it does not combine in rank order";
  }
  if (algorithm.recorded != nullptr) {
    return why_not_recorded(algorithm, input);
  }
  return algorithm.network_cost == nullptr ? "" : why_not_in_network(algorithm, input);
}

/// The reason why messages of several chunks, of a file that is only right with them, cannot go.
std::string why_not_messages(Protocol protocol,
                             const Algorithm& algorithm,
                             const ChoiceInput& input) {
  const auto chunks = static_cast<uint64_t>(chunks_of_message(algorithm, input.nranks));
  if (chunks == 1 || !algorithm.recorded->apart.empty()) {
    return "";
  }
  if (uses_lines(protocol) && input.blocks > 0) {
    return "CUDA ranks carry messages of several chunks by Simple only";
  }
  const uint32_t slot_bytes = payload_bytes_max(protocol, input.slot_bytes);
  return chunks * input.element_bytes <= slot_bytes
             ? ""
             : fmt::format(
                   "a message of {} chunks needs at least {} bytes, and a slot of {} has {}",
                   chunks, chunks * input.element_bytes, name(protocol), slot_bytes);
}

std::string why_not(Protocol protocol,
                    const Algorithm& algorithm,
                    const ChoiceInput& input,
                    const AlgorithmFilter& filter) {
  if (!filter.allows(input.collective, protocol)) {
    return "excluded by NCCL_PROTO";
  }
  if (input.selection != 0 && (input.selection & selection_of(algorithm, protocol)) == 0) {
    return "excluded by algSelection";
  }
  if (uses_lines(protocol) && !input.shares_memory) {
    return "no ranks share memory";
  }
  if (algorithm.recorded != nullptr &&
      algorithm.recorded->protocol.value_or(protocol) != protocol) {
    return fmt::format("its file is for {}", name(*algorithm.recorded->protocol));
  }
  return algorithm.recorded == nullptr ? "" : why_not_messages(protocol, algorithm, input);
}

/// A candidate for each protocol.
void add_candidates(const Algorithm& algorithm,
                    const ChoiceInput& input,
                    const AlgorithmFilter& filter,
                    std::vector<Candidate>& candidates) {
  const std::string excluded = why_not(algorithm, input, filter);
  for (const Protocol protocol : kProtocols) {
    std::string reason = excluded.empty() ? why_not(protocol, algorithm, input, filter) : excluded;
    candidates.push_back({.choice = {.algorithm = &algorithm,
                                     .protocol = protocol,
                                     .channels = std::min(std::max(1, input.channels_min),
                                                          channels_max_of(algorithm, input)),
                                     .chunk_bytes = payload_bytes_max(protocol, input.slot_bytes)},
                          .possible = reason.empty(),
                          .reason = std::move(reason)});
  }
}

}  // namespace

std::vector<Candidate> list_candidates(const ChoiceInput& call, const AlgorithmFilter& asked) {
  // A single rank only copies, so that no setting applies.
  static const AlgorithmFilter kAll;
  const bool is_alone = call.nranks == 1;
  const AlgorithmFilter& filter = is_alone ? kAll : asked;
  ChoiceInput input = call;
  input.selection = is_alone ? 0 : call.selection;
  std::vector<Candidate> candidates;
  for (const Algorithm& algorithm : algorithms()) {
    if (algorithm.collective != input.collective) {
      continue;
    }
    add_candidates(algorithm, input, filter, candidates);
  }
  for (const Algorithm& algorithm : input.recorded) {
    if (algorithm.collective == input.collective && input.nranks > 1) {
      add_candidates(algorithm, input, filter, candidates);
    }
  }
  return candidates;
}

namespace {

/// Why a call has no candidate, as what the user set.
Error describe_lack(const std::vector<Candidate>& candidates, const ChoiceInput& input) {
  if (input.deterministic) {
    return fail(Code::kInvalidUsage,
                "PLEXUS_DETERMINISTIC, with NCCL_ALGO and NCCL_PROTO as set, excludes every "
                "algorithm for {} on {} ranks: unset it, or use at most {} ranks",
                name(input.collective), input.nranks, kOperandsMax);
  }
  // An algorithm that the settings leave, and why it is not possible.
  std::string left;
  for (const Candidate& candidate : candidates) {
    if (left.empty() && !candidate.reason.starts_with("excluded by ")) {
      left = fmt::format(" ({}: {})", candidate.choice.algorithm->family, candidate.reason);
    }
  }
  if (input.selection != 0) {
    return fail(Code::kInvalidArgument,
                "nothing that algSelection names is possible for this {}{}: name others, or set "
                "forceAlgSelection to 0",
                name(input.collective), left);
  }
  return fail(Code::kInvalidUsage,
              "NCCL_ALGO and NCCL_PROTO exclude every algorithm for {}{}: unset them, or allow "
              "one of those that `plexus explain` lists",
              name(input.collective), left);
}

}  // namespace

Result<Decision> decide(const ChoiceInput& input, const AlgorithmFilter& filter, Tuner* tuner) {
  Decision decision{.candidates = list_candidates(input, filter), .chosen = 0, .by_tuner = false};
  decision.chosen = choose_by_rules(decision.candidates, input);
  if (tuner != nullptr) {
    if (const auto chosen = ask_tuner(decision.candidates, input, decision.chosen, *tuner)) {
      decision.chosen = *chosen;
      decision.by_tuner = true;
      return decision;
    }
  }
  if (decision.chosen < decision.candidates.size()) {
    return decision;
  }
  if (input.selection != 0 && !input.is_forced) {
    PLEXUS_INFO(kTuning, "nothing that algSelection names is possible for {}: any is taken",
                name(input.collective));
    ChoiceInput any = input;
    any.selection = 0;
    return decide(any, filter, tuner);
  }
  return describe_lack(decision.candidates, input);
}

Result<Choice> choose_algorithm(const ChoiceInput& input,
                                const AlgorithmFilter& filter,
                                Tuner* tuner) {
  PLEXUS_TRY(decision, decide(input, filter, tuner));
  return decision.candidates[decision.chosen].choice;
}

}  // namespace plexus
