// SPDX-License-Identifier: Apache-2.0
// NCCL_ALGO and NCCL_PROTO: which algorithms and protocols a user leaves to the choice.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.hpp"
#include "kernels/layout/protocol.hpp"
#include "kernels/program/algorithms.hpp"

namespace plexus {

/// The value of NCCL_ALGO or NCCL_PROTO: "list", or "collective:list;collective:^list"; `^`
/// excludes. Case does not matter.
class NameFilter {
 public:
  /// What the variable takes.
  struct Words {
    const char* variable;
    const char* what;  // "algorithm", for messages
    std::vector<std::string> known;
    std::vector<std::string> only_nccl;  // known there, but they select nothing here
  };
  /// kInvalidUsage on an unknown token: it names it and lists the known ones.
  static Result<NameFilter> parse(std::string_view text, const Words& words);
  /// Does a list that selects for all collectives decide about this one?
  [[nodiscard]] bool selects_for_all(Collective collective) const;
  /// `word`: lower case.
  [[nodiscard]] bool allows(Collective collective, std::string_view word) const;
  /// Does a list that does not exclude have it?
  [[nodiscard]] bool names(Collective collective, std::string_view word) const;

 private:
  struct Rule {
    std::string collective;  // as NCCL spells it, lower case; empty: all
    bool excludes;
    std::vector<std::string> words;
  };
  static Result<Rule> parse_rule(std::string_view text, const Words& words);
  [[nodiscard]] const Rule* find_rule(Collective collective) const;
  std::vector<Rule> rules_;
};

/// NCCL_ALGO (families of the table of algorithms) and NCCL_PROTO.
class AlgorithmFilter {
 public:
  static Result<AlgorithmFilter> parse(std::string_view algorithms, std::string_view protocols);
  [[nodiscard]] bool allows(const Algorithm& algorithm) const;
  [[nodiscard]] bool names(const Algorithm& algorithm) const;
  [[nodiscard]] bool allows(Collective collective, Protocol protocol) const;

 private:
  NameFilter algorithms_;
  NameFilter protocols_;
};

}  // namespace plexus
