// SPDX-License-Identifier: Apache-2.0
#include "core/schedule/choose_algorithm.hpp"

#include <algorithm>
#include <numeric>
#include <optional>

#include <fmt/ranges.h>

namespace plexus {
namespace {

// Values of NCCL_ALGO that are valid in NCCL and select nothing here.
const std::vector<std::string> kNcclOnly = {"nvls", "nvlstree"};

// Collectives as spelled in the per-collective form of NCCL_ALGO.
struct Spelling {
  Collective collective;
  const char* nccl;
};
constexpr Spelling kSpellings[] = {
    {Collective::kAllReduce, "allreduce"},
    {Collective::kBroadcast, "broadcast"},
    {Collective::kReduce, "reduce"},
    {Collective::kAllGather, "allgather"},
    {Collective::kReduceScatter, "reducescatter"},
    {Collective::kAllToAll, "alltoall"},
    {Collective::kGather, "gather"},
    {Collective::kScatter, "scatter"},
};

// The built-in rules, used without a tuner. All-pairs sends nranks - 1 whole messages at once; a
// ring sends 2 * (nranks - 1) parts one after the other. Up to these sizes the number of rounds
// decides (measured by tests/bench/run: crossover on 2 and 4 ranks).
constexpr uint64_t kAllPairsBytesMax = uint64_t{16} * 1024;
constexpr int kAllPairsRanksMax = 16;
// Logarithmic algorithms are better when the chunks of a linear one would be smaller than this.
constexpr uint64_t kLinearChunkBytesMin = 4096;
constexpr int kLinearRanksMax = 4;

std::string lower(std::string_view text) {
  std::string result(text);
  std::transform(result.begin(), result.end(), result.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return result;
}

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  while (!text.empty()) {
    const size_t at = std::min(text.find(separator), text.size());
    if (at > 0) {
      parts.emplace_back(text.substr(0, at));
    }
    text.remove_prefix(std::min(at + 1, text.size()));
  }
  return parts;
}

std::vector<std::string> known_families() {
  std::vector<std::string> families;
  for (const Algorithm& row : algorithms()) {
    if (!is_point_to_point(row.collective) &&
        std::find(families.begin(), families.end(), row.family) == families.end()) {
      families.emplace_back(row.family);
    }
  }
  return families;
}

const char* nccl_spelling(Collective collective) {
  const auto* const at =
      std::find_if(std::begin(kSpellings), std::end(kSpellings),
                   [&](const Spelling& row) { return row.collective == collective; });
  return at == std::end(kSpellings) ? "" : at->nccl;
}

/// Whether the built-in rules prefer this algorithm to the default (the first) of its collective.
bool suits(const Algorithm& algorithm, const ChoiceInput& input) {
  const std::string_view family = algorithm.family;
  // only possible if the user enabled it; direct if there are several heads
  if (algorithm.network_cost != nullptr) {
    return (family == "collnetdirect") == (input.collnet != nullptr && input.collnet->heads > 1);
  }
  if (family == "allpairs") {
    return input.size_bytes <= std::min<uint64_t>(kAllPairsBytesMax, input.slot_bytes) &&
           input.nranks <= kAllPairsRanksMax;
  }
  const bool is_small =
      input.nranks > kLinearRanksMax &&
      input.size_bytes / static_cast<uint64_t>(input.nranks) < kLinearChunkBytesMin;
  switch (input.collective) {
    case Collective::kAllReduce:
      return is_small && family == "doubling" && input.nranks > kAllPairsRanksMax;
    case Collective::kBroadcast:
    case Collective::kReduce:
      return is_small && family == "binomial";
    case Collective::kAllGather:
      return is_small && family == "bruck";
    case Collective::kReduceScatter:
      return is_small && family == "pat";
    default:
      return false;
  }
}

ChannelOrder flat_order(int nranks) {
  ChannelOrder order;
  order.ring.resize(static_cast<size_t>(nranks));
  std::iota(order.ring.begin(), order.ring.end(), 0);
  order.nodes = {0};
  return order;
}

}  // namespace

LoopCost cost_of(const Choice& choice, const ChoiceInput& input) {
  const Algorithm& algorithm = *choice.algorithm;
  if (algorithm.network_cost != nullptr) {
    return LoopCost(cost_of(
        algorithm, {.nranks = input.nranks,
                    .nodes = input.nodes,
                    .ranks_per_node_max = input.ranks_per_node_max,
                    .heads = input.collnet == nullptr ? 1 : std::max(input.collnet->heads, 1)}));
  }
  return input.costs != nullptr ? input.costs->of(algorithm)
                                : LoopCosts(flat_order(input.nranks), true).of(algorithm);
}

namespace {

plexus_tuner_candidate_t describe(const Choice& choice, const ChoiceInput& input) {
  const LoopCost cost = cost_of(choice, input);
  plexus_tuner_candidate_t candidate{};
  candidate.struct_size = sizeof(candidate);
  candidate.algorithm = choice.algorithm->family;
  candidate.protocol = name(choice.protocol);
  candidate.rounds = static_cast<uint32_t>(cost.rounds);
  candidate.chunks_per_loop = static_cast<uint32_t>(cost.chunks);
  candidate.chunks_moved = static_cast<uint32_t>(cost.chunks_moved);
  candidate.channels_min = static_cast<uint32_t>(input.channels_min);
  candidate.channels_max = static_cast<uint32_t>(input.channels_max);
  candidate.time_ns = -1;
  candidate.channels = static_cast<uint32_t>(choice.channels);
  candidate.chunk_bytes = choice.chunk_bytes;
  candidate.chunks_in_all = static_cast<uint64_t>(cost.chunks_in_all);
  candidate.chunks_reduced = static_cast<uint32_t>(cost.chunks_reduced);
  candidate.xdc_rounds = static_cast<uint32_t>(cost.xdc_rounds);
  candidate.xdc_chunks = static_cast<uint64_t>(cost.xdc_chunks_out());
  return candidate;
}

/// Returns candidates.size() if no candidate is possible. Prefers the last protocol, Simple, which
/// is at least as fast as the others between host ranks (docs/performance.md).
size_t choose_by_rules(const std::vector<Candidate>& candidates, const ChoiceInput& input) {
  const Algorithm* algorithm = nullptr;
  for (const Candidate& candidate : candidates) {
    const bool better = algorithm == nullptr || suits(*candidate.choice.algorithm, input);
    algorithm = candidate.possible && better ? candidate.choice.algorithm : algorithm;
  }
  size_t chosen = candidates.size();
  for (size_t i = 0; i < candidates.size(); ++i) {
    const Candidate& candidate = candidates[i];
    chosen = candidate.possible && candidate.choice.algorithm == algorithm ? i : chosen;
  }
  return chosen;
}

/// Stores the tuner's times; returns the candidate with the shortest, or nullopt.
std::optional<size_t> choose_by_tuner(std::vector<Candidate>& candidates,
                                      const ChoiceInput& input,
                                      size_t by_rules,
                                      Tuner& tuner) {
  std::vector<plexus_tuner_candidate_t> asked;
  std::vector<size_t> places;
  size_t built_in = 0;
  for (size_t i = 0; i < candidates.size(); ++i) {
    if (candidates[i].possible) {
      built_in = i == by_rules ? asked.size() : built_in;
      const Choice& choice = candidates[i].choice;
      asked.push_back(describe(choice, input));
      places.push_back(i);
    }
  }
  plexus_tuner_call_t call{};
  call.struct_size = sizeof(call);
  call.collective = name(input.collective);
  call.size_bytes = input.size_bytes;
  call.element_bytes = input.element_bytes;
  call.calls_in_group = input.calls_in_group;
  if (asked.empty() || !tuner.get_times(call, asked, built_in)) {
    return std::nullopt;
  }
  std::optional<size_t> chosen;
  int64_t shortest_ns = 0;
  for (size_t i = 0; i < asked.size(); ++i) {
    Candidate& candidate = candidates[places[i]];
    candidate.choice.channels = static_cast<int>(asked[i].channels);
    candidate.choice.chunk_bytes = asked[i].chunk_bytes;
    if (asked[i].time_ns >= 0) {
      candidate.predicted_us = static_cast<double>(asked[i].time_ns) / 1000;
      if (!chosen.has_value() || asked[i].time_ns < shortest_ns) {
        chosen = places[i];
        shortest_ns = asked[i].time_ns;
      }
    }
  }
  return chosen;
}

}  // namespace

Result<NameFilter::Rule> NameFilter::parse_rule(std::string_view text, const Words& words) {
  Rule rule{};
  const size_t colon = text.find(':');
  if (colon != std::string_view::npos) {
    rule.collective = lower(text.substr(0, colon));
    text.remove_prefix(colon + 1);
    const bool known =
        std::any_of(std::begin(kSpellings), std::end(kSpellings),
                    [&](const Spelling& row) { return rule.collective == row.nccl; });
    if (!known) {
      return fail(Code::kInvalidUsage,
                  "{}: '{}' is no collective; known are allreduce, broadcast, reduce, allgather, "
                  "reducescatter, alltoall, gather, scatter",
                  words.variable, rule.collective);
    }
  }
  if (text.starts_with('^')) {
    rule.excludes = true;
    text.remove_prefix(1);
  }
  rule.words = split(lower(text), ',');
  for (const std::string& word : rule.words) {
    const auto has = [&](const std::vector<std::string>& list) {
      return std::find(list.begin(), list.end(), word) != list.end();
    };
    if (!has(words.known) && !has(words.only_nccl)) {
      return fail(Code::kInvalidUsage, "{}: '{}' is no {}; this build has {}", words.variable, word,
                  words.what, fmt::join(words.known, ", "));
    }
  }
  return rule;
}

Result<NameFilter> NameFilter::parse(std::string_view text, const Words& words) {
  NameFilter filter;
  for (const std::string& part : split(text, ';')) {
    PLEXUS_TRY(rule, parse_rule(part, words));
    filter.rules_.push_back(std::move(rule));
  }
  return filter;
}

const NameFilter::Rule* NameFilter::find_rule(Collective collective) const {
  const std::string_view spelling = nccl_spelling(collective);
  const Rule* found = nullptr;
  for (const Rule& rule : rules_) {
    if (rule.collective == spelling || (rule.collective.empty() && found == nullptr)) {
      found = &rule;
    }
  }
  return found;
}

bool NameFilter::selects_for_all(Collective collective) const {
  const Rule* const rule = find_rule(collective);
  return rule != nullptr && rule->collective.empty() && !rule->excludes;
}

bool NameFilter::allows(Collective collective, std::string_view word) const {
  const Rule* const rule = find_rule(collective);
  if (rule == nullptr || is_point_to_point(collective)) {
    return true;
  }
  const bool named = std::find(rule->words.begin(), rule->words.end(), word) != rule->words.end();
  return rule->excludes ? !named : named;
}

bool NameFilter::names(Collective collective, std::string_view word) const {
  const Rule* const rule = find_rule(collective);
  return rule != nullptr && !rule->excludes &&
         std::find(rule->words.begin(), rule->words.end(), word) != rule->words.end();
}

Result<AlgorithmFilter> AlgorithmFilter::parse(std::string_view algorithms,
                                               std::string_view protocols) {
  AlgorithmFilter filter;
  PLEXUS_TRY(of_algorithms, NameFilter::parse(algorithms, {.variable = "NCCL_ALGO",
                                                           .what = "algorithm",
                                                           .known = known_families(),
                                                           .only_nccl = kNcclOnly}));
  std::vector<std::string> known;
  for (const Protocol protocol : kProtocols) {
    known.push_back(lower(name(protocol)));
  }
  PLEXUS_TRY(of_protocols, NameFilter::parse(protocols, {.variable = "NCCL_PROTO",
                                                         .what = "protocol",
                                                         .known = std::move(known),
                                                         .only_nccl = {}}));
  filter.algorithms_ = std::move(of_algorithms);
  filter.protocols_ = std::move(of_protocols);
  return filter;
}

bool AlgorithmFilter::allows(const Algorithm& algorithm) const {
  // A list for all collectives (NCCL_ALGO=ring) does not exclude `pairwise`, which is the only
  // algorithm of its collectives and has no name in NCCL.
  const bool is_spared = std::string_view(algorithm.family) == "pairwise" &&
                         algorithms_.selects_for_all(algorithm.collective);
  return is_spared || algorithms_.allows(algorithm.collective, algorithm.family);
}

bool AlgorithmFilter::names(const Algorithm& algorithm) const {
  return algorithms_.names(algorithm.collective, algorithm.family);
}

bool AlgorithmFilter::allows(Collective collective, Protocol protocol) const {
  return protocols_.allows(collective, lower(name(protocol)));
}

namespace {

/// Whether it may send between any two datacenters, unlike a ring, which only uses neighbours.
bool needs_mesh(const Algorithm& algorithm) {
  const std::span<const Algorithm> table = algorithms();
  return std::string_view(algorithm.family) != "ring" &&
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
    return "some datacenters are not joined directly";
  }
  if (input.deterministic && is_reduction(input.collective) && !algorithm.in_rank_order) {
    return "excluded by PLEXUS_DETERMINISTIC: it does not combine in rank order";
  }
  return algorithm.network_cost == nullptr ? "" : why_not_in_network(algorithm, input);
}

std::string why_not(Protocol protocol, const ChoiceInput& input, const AlgorithmFilter& filter) {
  if (!filter.allows(input.collective, protocol)) {
    return "excluded by NCCL_PROTO";
  }
  if (uses_lines(protocol) && !input.shares_memory) {
    return "no ranks share memory";
  }
  return "";
}

}  // namespace

std::vector<Candidate> list_candidates(const ChoiceInput& input, const AlgorithmFilter& asked) {
  // A single rank only copies, so that no setting applies.
  static const AlgorithmFilter kAll;
  const AlgorithmFilter& filter = input.nranks == 1 ? kAll : asked;
  std::vector<Candidate> candidates;
  for (const Algorithm& algorithm : algorithms()) {
    if (algorithm.collective != input.collective) {
      continue;
    }
    const std::string excluded = why_not(algorithm, input, filter);
    for (const Protocol protocol : kProtocols) {
      std::string reason = excluded.empty() ? why_not(protocol, input, filter) : excluded;
      const uint32_t chunk_bytes = uses_lines(protocol)
                                       ? std::min(input.slot_bytes, payload_bytes_max(protocol))
                                       : input.slot_bytes;
      candidates.push_back(
          {.choice = {.algorithm = &algorithm,
                      .protocol = protocol,
                      .channels = std::clamp(1, input.channels_min, input.channels_max),
                      .chunk_bytes = chunk_bytes},
           .possible = reason.empty(),
           .reason = std::move(reason)});
    }
  }
  return candidates;
}

Result<Decision> decide(const ChoiceInput& input, const AlgorithmFilter& filter, Tuner* tuner) {
  Decision decision{.candidates = list_candidates(input, filter), .chosen = 0, .by_tuner = false};
  decision.chosen = choose_by_rules(decision.candidates, input);
  if (tuner != nullptr) {
    if (const auto chosen = choose_by_tuner(decision.candidates, input, decision.chosen, *tuner)) {
      decision.chosen = *chosen;
      decision.by_tuner = true;
      return decision;
    }
  }
  if (decision.chosen == decision.candidates.size()) {
    if (input.deterministic) {
      return fail(Code::kInvalidUsage,
                  "PLEXUS_DETERMINISTIC leaves no algorithm for {} on {} ranks (with NCCL_ALGO and "
                  "NCCL_PROTO "
                  "as they are): unset it, or use at most {} ranks",
                  name(input.collective), input.nranks, kOperandsMax);
    }
    // An algorithm that the settings leave, and why it is not possible.
    std::string left;
    for (const Candidate& candidate : decision.candidates) {
      if (left.empty() && !candidate.reason.starts_with("excluded by NCCL_")) {
        left = fmt::format(" ({}: {})", candidate.choice.algorithm->family, candidate.reason);
      }
    }
    return fail(
        Code::kInvalidUsage,
        "NCCL_ALGO and NCCL_PROTO leave no way to do {}{}: remove them, or name one of its ways "
        "(`plexus explain` lists them)",
        name(input.collective), left);
  }
  return decision;
}

Result<Choice> choose_algorithm(const ChoiceInput& input,
                                const AlgorithmFilter& filter,
                                Tuner* tuner) {
  PLEXUS_TRY(decision, decide(input, filter, tuner));
  return decision.candidates[decision.chosen].choice;
}

}  // namespace plexus
