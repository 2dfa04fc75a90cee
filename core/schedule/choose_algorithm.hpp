// SPDX-License-Identifier: Apache-2.0
// Which algorithm, protocol and number of channels serve a call: every legal way is a candidate,
// the tuner states times, the shortest wins. Depends only on values that all ranks share, so that
// they agree without talking; the choice is part of what ranks compare (CallRecord::hash).
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

/// What a communicator's network can reduce (ncclCollNet); alike on all ranks.
struct CollnetAbility {
  std::string missing;  // why there is none, as half a sentence; empty: there is one
  int heads = 0;        // ranks of each host that talk to it
  std::array<uint8_t, kDataTypeCount> kinds{};  // per type, bit k: ReduceKind k
};

/// A slot where NCCL_BUFFSIZE is not set: in memory it is to stay in a core's cache between writer
/// and reader, of a network it is to cost few system calls a byte (docs/performance.md).
inline constexpr uint32_t kSlotBytesOfMemory = 128 * 1024;
inline constexpr uint32_t kSlotBytesOfNetwork = 512 * 1024;

struct ChoiceInput {
  Collective collective = Collective::kAllReduce;
  uint64_t size_bytes = 0;  // of the larger buffer of a rank
  int nranks = 1;
  int channels_min = 1;
  int channels_max = 1;
  uint32_t slot_bytes = 0;
  uint32_t element_bytes = 4;
  uint32_t calls_in_group = 1;
  bool shares_memory = true;   // some ranks do, so that LL and LL128 are possible between those
  bool deterministic = false;  // reductions in rank order only
  int nodes = 1;               // hosts, or parts of hosts with a network in between
  int ranks_per_node_max = 1;
  DataType type = DataType::kFloat32;
  ReduceKind kind = ReduceKind::kSum;
  const CollnetAbility* collnet = nullptr;  // nullptr: none
  const LoopCosts* costs = nullptr;         // of the communicator; null: one of one datacenter
};

struct Choice {
  const Algorithm* algorithm;
  Protocol protocol;
  int channels;
  uint32_t chunk_bytes;  // most bytes of a chunk, at most a slot of the protocol
};

/// One way to do a call, and what speaks for or against it.
struct Candidate {
  Choice choice;
  bool possible;
  std::string reason;        // why it is not possible, else empty
  double predicted_us = -1;  // by the tuner; -1: it said nothing, or not to use it
};

/// All ways of this build to do the collective, in the order of the table of algorithms.
std::vector<Candidate> list_candidates(const ChoiceInput& input, const AlgorithmFilter& filter);

/// A loop of the candidate, for the ranks of the call.
LoopCost cost_of(const Choice& choice, const ChoiceInput& input);

/// What is chosen, and the candidates it was chosen from.
struct Decision {
  std::vector<Candidate> candidates;
  size_t chosen;
  bool by_tuner;
};

/// The candidate with the shortest time; without a tuner (nullptr, or one that gave no times), by
/// the built-in rules. kInvalidUsage when no candidate is possible.
Result<Decision> decide(const ChoiceInput& input, const AlgorithmFilter& filter, Tuner* tuner);
Result<Choice> choose_algorithm(const ChoiceInput& input,
                                const AlgorithmFilter& filter,
                                Tuner* tuner);

}  // namespace plexus
