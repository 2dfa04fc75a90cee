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

/// A value of NCCL_ALGO or NCCL_PROTO: "list" or "collective:list;collective:^list"; `^` excludes.
/// Case is ignored.
class NameFilter {
 public:
  /// The words that the variable accepts.
  struct Words {
    const char* variable;
    const char* what;  // "algorithm", for error messages
    std::vector<std::string> known;
    std::vector<std::string> only_nccl;  // valid in NCCL; they select nothing here
  };
  /// kInvalidUsage on an unknown token; names the token and the known ones.
  static Result<NameFilter> parse(std::string_view text, const Words& words);
  /// Whether a list that includes (no `^`) and names no collective decides about this one.
  [[nodiscard]] bool selects_for_all(Collective collective) const;
  /// Whether `word` (lower case) is allowed.
  [[nodiscard]] bool allows(Collective collective, std::string_view word) const;
  /// Whether a list is for this collective, or for all.
  [[nodiscard]] bool decides(Collective collective) const {
    return find_rule(collective) != nullptr;
  }
  /// Whether a list that includes (no `^`) contains `word`.
  [[nodiscard]] bool names(Collective collective, std::string_view word) const;

 private:
  struct Rule {
    std::string collective;  // NCCL's spelling in lower case; empty: all
    bool excludes;
    std::vector<std::string> words;
  };
  static Result<Rule> parse_rule(std::string_view text, const Words& words);
  [[nodiscard]] const Rule* find_rule(Collective collective) const;
  std::vector<Rule> rules_;
};

/// The filters of NCCL_ALGO (families of the algorithm table) and NCCL_PROTO.
class AlgorithmFilter {
 public:
  /// `more`: families beside those of the table (lower case).
  static Result<AlgorithmFilter> parse(std::string_view algorithms,
                                       std::string_view protocols,
                                       std::vector<std::string> more = {});
  /// NCCL_ALGO or NCCL_PROTO says something about this collective.
  [[nodiscard]] bool decides(Collective collective) const {
    return algorithms_.decides(collective) || protocols_.decides(collective);
  }
  [[nodiscard]] bool allows(const Algorithm& algorithm) const;
  [[nodiscard]] bool names(const Algorithm& algorithm) const;
  [[nodiscard]] bool allows(Collective collective, Protocol protocol) const;

 private:
  NameFilter algorithms_;
  NameFilter protocols_;
};

}  // namespace plexus
