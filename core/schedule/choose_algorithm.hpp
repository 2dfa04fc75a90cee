// SPDX-License-Identifier: Apache-2.0
// Which algorithm, protocol and number of channels serve a call. Depends only on values that all
// ranks share, so that they agree without talking.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.hpp"
#include "kernels/program/algorithms.hpp"

namespace plexus {

/// NCCL_ALGO: "list", or "collective:list;collective:^list"; `^` excludes. Families are those of
/// the table of algorithms; NCCL's other names are known, but serve no collective here.
class AlgorithmFilter {
 public:
  /// kInvalidUsage on an unknown token: it names it and lists the known ones.
  static Result<AlgorithmFilter> parse(std::string_view text);
  [[nodiscard]] bool allows(const Algorithm& algorithm) const;

 private:
  struct Rule {
    std::string collective;  // as NCCL spells it, lower case; empty: all
    bool excludes;
    std::vector<std::string> families;
  };
  static Result<Rule> parse_rule(std::string_view text);
  [[nodiscard]] const Rule* find_rule(Collective collective) const;
  std::vector<Rule> rules_;
};

/// How data moves through slots. LL and LL128 take their place here.
enum class Protocol : uint8_t { kSimple };
const char* name(Protocol protocol);

struct ChoiceInput {
  Collective collective;
  uint64_t size_bytes;  // of the larger buffer of a rank
  int nranks;
  int channels_min;
  int channels_max;
  uint32_t slot_bytes;
};

struct Choice {
  const Algorithm* algorithm;
  Protocol protocol;
  int channels;
};

/// kInvalidUsage when the filter leaves no algorithm for the collective.
Result<Choice> choose_algorithm(const ChoiceInput& input, const AlgorithmFilter& filter);

}  // namespace plexus
