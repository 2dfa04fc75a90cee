// SPDX-License-Identifier: Apache-2.0
#include "core/tuning/algorithm_filter.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

#include <fmt/ranges.h>

#include "core/base/text.hpp"

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
      return fail(Code::kInvalidArgument,
                  "{}: '{}' is not a collective; known are allreduce, broadcast, reduce, "
                  "allgather, reducescatter, alltoall, gather, scatter",
                  words.variable, rule.collective);
    }
  }
  if (text.starts_with('^')) {
    rule.excludes = true;
    text.remove_prefix(1);
  }
  const std::string lowered = lower(text);
  for (const std::string_view word : split_list(lowered, ',')) {
    rule.words.emplace_back(word);
  }
  for (const std::string& word : rule.words) {
    const auto has = [&](const std::vector<std::string>& list) {
      return std::find(list.begin(), list.end(), word) != list.end();
    };
    if (!has(words.known) && !has(words.only_nccl)) {
      return fail(Code::kInvalidArgument, "{}: '{}' is not a known {}; this build has {}",
                  words.variable, word, words.what, fmt::join(words.known, ", "));
    }
  }
  return rule;
}

Result<NameFilter> NameFilter::parse(std::string_view text, const Words& words) {
  NameFilter filter;
  for (const std::string_view part : split_list(text, ';')) {
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
                                               std::string_view protocols,
                                               std::vector<std::string> more) {
  AlgorithmFilter filter;
  std::vector<std::string> families = known_families();
  families.insert(families.end(), std::make_move_iterator(more.begin()),
                  std::make_move_iterator(more.end()));
  PLEXUS_TRY(of_algorithms, NameFilter::parse(algorithms, {.variable = "NCCL_ALGO",
                                                           .what = "algorithm",
                                                           .known = std::move(families),
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
  const bool is_exempt = std::string_view(algorithm.family) == "pairwise" &&
                         algorithms_.selects_for_all(algorithm.collective);
  return is_exempt || algorithms_.allows(algorithm.collective, algorithm.family);
}

bool AlgorithmFilter::names(const Algorithm& algorithm) const {
  return algorithms_.names(algorithm.collective, algorithm.family);
}

bool AlgorithmFilter::allows(Collective collective, Protocol protocol) const {
  return protocols_.allows(collective, lower(name(protocol)));
}

}  // namespace plexus
