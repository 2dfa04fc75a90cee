// SPDX-License-Identifier: Apache-2.0
#include "core/schedule/choose_algorithm.hpp"

#include <algorithm>
#include <array>

namespace plexus {
namespace {

// Names that NCCL_ALGO takes besides the families of our table: they select nothing.
constexpr std::array kNcclOnly = {"tree", "collnetdirect", "collnetchain",
                                  "nvls", "nvlstree",      "pat"};

// NCCL_ALGO's per-collective form spells collectives like this.
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

// All-pairs sends nranks-1 whole messages, a ring 2(nranks-1) parts one after the other. Up to
// these sizes the number of turns decides (tests/bench/run: crossover on 2 and 4 ranks).
constexpr uint64_t kAllPairsBytesMax = uint64_t{16} * 1024;
constexpr int kAllPairsRanksMax = 16;

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

bool is_known_family(const std::string& family) {
  const auto table = algorithms();
  return std::find(kNcclOnly.begin(), kNcclOnly.end(), family) != kNcclOnly.end() ||
         std::any_of(table.begin(), table.end(),
                     [&](const Algorithm& row) { return family == row.family; });
}

const char* nccl_spelling(Collective collective) {
  const auto* const at =
      std::find_if(std::begin(kSpellings), std::end(kSpellings),
                   [&](const Spelling& row) { return row.collective == collective; });
  return at == std::end(kSpellings) ? "" : at->nccl;
}

bool suits(const Algorithm& algorithm, const ChoiceInput& input) {
  if (std::string_view(algorithm.family) != "allpairs") {
    return false;
  }
  return input.size_bytes <= std::min<uint64_t>(kAllPairsBytesMax, input.slot_bytes) &&
         input.nranks <= kAllPairsRanksMax;
}

}  // namespace

Result<AlgorithmFilter::Rule> AlgorithmFilter::parse_rule(std::string_view text) {
  Rule rule{};
  const size_t colon = text.find(':');
  if (colon != std::string_view::npos) {
    rule.collective = lower(text.substr(0, colon));
    text.remove_prefix(colon + 1);
    const bool known =
        std::any_of(std::begin(kSpellings), std::end(kSpellings),
                    [&](const Spelling& row) { return rule.collective == row.nccl; });
    if (!known) {
      return fail(
          Code::kInvalidUsage,
          "NCCL_ALGO: '{}' is no collective; known are allreduce, broadcast, reduce, allgather, "
          "reducescatter, alltoall, gather, scatter",
          rule.collective);
    }
  }
  if (text.starts_with('^')) {
    rule.excludes = true;
    text.remove_prefix(1);
  }
  rule.families = split(lower(text), ',');
  for (const std::string& family : rule.families) {
    if (!is_known_family(family)) {
      return fail(Code::kInvalidUsage,
                  "NCCL_ALGO: '{}' is no algorithm; this build has ring, allpairs, pairwise",
                  family);
    }
  }
  return rule;
}

Result<AlgorithmFilter> AlgorithmFilter::parse(std::string_view text) {
  AlgorithmFilter filter;
  for (const std::string& part : split(text, ';')) {
    PLEXUS_TRY(rule, parse_rule(part));
    filter.rules_.push_back(std::move(rule));
  }
  return filter;
}

const AlgorithmFilter::Rule* AlgorithmFilter::find_rule(Collective collective) const {
  const std::string_view spelling = nccl_spelling(collective);
  const Rule* found = nullptr;
  for (const Rule& rule : rules_) {
    if (rule.collective == spelling || (rule.collective.empty() && found == nullptr)) {
      found = &rule;
    }
  }
  return found;
}

bool AlgorithmFilter::allows(const Algorithm& algorithm) const {
  const Rule* const rule = find_rule(algorithm.collective);
  if (rule == nullptr || is_point_to_point(algorithm.collective)) {
    return true;
  }
  const bool named = std::find(rule->families.begin(), rule->families.end(), algorithm.family) !=
                     rule->families.end();
  // A list that speaks of all collectives (NCCL_ALGO=ring) does not take away the only algorithm of
  // the pairwise ones, which NCCL has no names for.
  const bool pairwise =
      rule->collective.empty() && std::string_view(algorithm.family) == "pairwise";
  return rule->excludes ? !named : named || pairwise;
}

const char* name(Protocol /*protocol*/) { return "Simple"; }

Result<Choice> choose_algorithm(const ChoiceInput& input, const AlgorithmFilter& filter) {
  const Algorithm* chosen = nullptr;
  for (const Algorithm& algorithm : algorithms()) {
    const bool possible = algorithm.collective == input.collective && filter.allows(algorithm) &&
                          input.nranks <= algorithm.nranks_max;
    // Later rows of the table are for special cases and win where they suit.
    if (possible && (chosen == nullptr || suits(algorithm, input))) {
      chosen = &algorithm;
    }
  }
  if (chosen == nullptr) {
    return fail(Code::kInvalidUsage,
                "NCCL_ALGO leaves no algorithm for {}: remove it, or name one of its algorithms "
                "(`plexus verify` lists them)",
                name(input.collective));
  }
  return Choice{chosen, Protocol::kSimple, std::clamp(1, input.channels_min, input.channels_max)};
}

}  // namespace plexus
