// SPDX-License-Identifier: Apache-2.0
// Chooses algorithm, protocol and number of channels of a call: every combination is a candidate,
// the tuner predicts times, the shortest time wins. The choice depends only on values that all
// ranks share, so that ranks agree without communication; it is also part of what ranks compare
// (CallRecord::hash).
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.hpp"
#include "core/plugin/tuner_plugin.hpp"
#include "core/schedule/loop_costs.hpp"
#include "kernels/layout/protocol.hpp"
#include "kernels/layout/types.hpp"
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
  static Result<AlgorithmFilter> parse(std::string_view algorithms, std::string_view protocols);
  [[nodiscard]] bool allows(const Algorithm& algorithm) const;
  [[nodiscard]] bool names(const Algorithm& algorithm) const;
  [[nodiscard]] bool allows(Collective collective, Protocol protocol) const;

 private:
  NameFilter algorithms_;
  NameFilter protocols_;
};

/// What a communicator's network can reduce (ncclCollNet); equal on all ranks.
struct CollnetAbility {
  std::string missing;  // why the network cannot reduce, as half a sentence; empty: it can
  int heads = 0;        // number of ranks of each host that use the network's reduction
  std::array<uint8_t, kDataTypeCount> kinds{};  // by data type: bit k is ReduceKind k
};

/// Slot sizes without NCCL_BUFFSIZE. A slot in memory should stay in a core's cache between writer
/// and reader; a slot of a network should need few system calls per byte (docs/performance.md).
inline constexpr uint32_t kSlotBytesOfMemory = 128 * 1024;
inline constexpr uint32_t kSlotBytesOfNetwork = 512 * 1024;

struct ChoiceInput {
  Collective collective = Collective::kAllReduce;
  uint64_t size_bytes = 0;  // size of the rank's larger buffer
  int nranks = 1;
  int channels_min = 1;
  int channels_max = 1;
  uint32_t slot_bytes = 0;
  uint32_t element_bytes = 4;
  uint32_t calls_in_group = 1;
  bool shares_memory = true;   // some ranks do; LL and LL128 are possible only between those
  bool deterministic = false;  // reductions in rank order only
  // number of hosts, or of parts of hosts that only the network connects
  int nodes = 1;
  int ranks_per_node_max = 1;
  DataType type = DataType::kFloat32;
  ReduceKind kind = ReduceKind::kSum;
  const CollnetAbility* collnet = nullptr;  // nullptr: none
  const LoopCosts* costs = nullptr;         // the communicator's; null: a single datacenter
};

struct Choice {
  const Algorithm* algorithm;
  Protocol protocol;
  int channels;
  uint32_t chunk_bytes;  // largest chunk; at most the protocol's slot
};

/// A combination of algorithm and protocol, and what speaks for or against it.
struct Candidate {
  Choice choice;
  bool possible;
  std::string reason;        // why it is not possible; empty: it is
  double predicted_us = -1;  // the tuner's time; -1: it gave none, or advised against it
};

/// All candidates for the collective, in the order of the algorithm table.
std::vector<Candidate> list_candidates(const ChoiceInput& input, const AlgorithmFilter& filter);

/// Cost of one loop of the choice on the call's ranks.
LoopCost cost_of(const Choice& choice, const ChoiceInput& input);

/// The choice, and the candidates that it was made from.
struct Decision {
  std::vector<Candidate> candidates;
  size_t chosen;
  bool by_tuner;
};

/// Chooses the candidate with the shortest time; without a tuner (nullptr, or one that gave no
/// times), by the built-in rules. kInvalidUsage when no candidate is possible.
Result<Decision> decide(const ChoiceInput& input, const AlgorithmFilter& filter, Tuner* tuner);
Result<Choice> choose_algorithm(const ChoiceInput& input,
                                const AlgorithmFilter& filter,
                                Tuner* tuner);

}  // namespace plexus
