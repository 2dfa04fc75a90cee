// SPDX-License-Identifier: Apache-2.0
// A parsed script (README.md has the grammar): a list of rules, and the effects that follow for a
// connection. Pure; malformed text is a failure that names the word. `plexus sim --faults` reads
// the same scripts (tools/sim/faults.hpp).
#pragma once

#include <chrono>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <optional>
#include <string_view>
#include <vector>

#include "plugins/support/result.hpp"

namespace plexus::net_chaos {

using plugin::fail;
using plugin::Failure;
using plugin::ok;
using plugin::Progress;
using plugin::Result;
using Nanoseconds = std::chrono::nanoseconds;

struct Effects {
  Nanoseconds delay{0};
  Nanoseconds jitter{0};
  uint64_t rate_bit_per_s = 0;     // 0: unlimited
  uint64_t stall_every_bytes = 0;  // 0: never
  Nanoseconds stall{0};
  uint64_t cut_at_byte = std::numeric_limits<uint64_t>::max();
  uint64_t flip_at_byte = std::numeric_limits<uint64_t>::max();
  uint32_t again_percent = 0;
  uint32_t reorder_tests_max = 0;
  Nanoseconds late{0};
  Nanoseconds overtake{0};
  Nanoseconds elsewhere{0};
  Nanoseconds slow{0};
  uint64_t piece_bytes = 0;  // 0: whole messages
};

/// The connection that the script is applied to. A network does not know the ranks of its ends.
struct Subject {
  bool is_send = true;
  uint32_t device = 0;
  uint32_t connection = 0;
  uint32_t rank = 0;  // its own
  uint32_t peer = 0;
};

struct Rule {
  std::optional<bool> is_send;
  std::optional<uint32_t> device;
  std::optional<uint32_t> connection;
  std::optional<uint32_t> rank;
  std::optional<uint32_t> peer;
  Effects effects;
  uint32_t set = 0;  // bit i: the rule sets effect number i of the grammar
};

class Script {
 public:
  [[nodiscard]] static Result<Script> parse(std::string_view text);
  [[nodiscard]] Effects effects_of(const Subject& subject) const;
  /// Whether a rule depends on ranks, which only the simulator knows (tools/sim).
  [[nodiscard]] bool names_ranks() const;
  /// The first effect of a rule that is not one of `known`; empty: there is none.
  [[nodiscard]] std::string_view find_effect_not_in(
      std::initializer_list<std::string_view> known) const;
  /// Equal for all connections, because both ends must agree on it.
  [[nodiscard]] uint64_t piece_bytes() const { return effects_of({}).piece_bytes; }

 private:
  std::vector<Rule> rules_;
};

}  // namespace plexus::net_chaos
