// SPDX-License-Identifier: Apache-2.0
#include "core/tuning/built_in_rules.hpp"

#include <algorithm>
#include <string_view>

namespace plexus {
namespace {

// All-pairs sends nranks - 1 whole messages at once; a ring sends 2 * (nranks - 1) parts one after
// the other. Up to these sizes the number of rounds decides (measured by tests/bench/run: crossover
// on 2 and 4 ranks).
constexpr uint64_t kAllPairsBytesMax = uint64_t{16} * 1024;
constexpr int kAllPairsRanksMax = 16;
// Logarithmic algorithms are better when the chunks of a linear one would be smaller than this.
constexpr uint64_t kLinearChunkBytesMin = 4096;
constexpr int kLinearRanksMax = 4;

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

}  // namespace

/// Prefers the last protocol, Simple, which is at least as fast
/// as the others between host ranks (docs/performance.md).
size_t choose_by_rules(std::span<const Candidate> candidates, const ChoiceInput& input) {
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

}  // namespace plexus
