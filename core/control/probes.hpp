// SPDX-License-Identifier: Apache-2.0
// Probes of ranks that wait (core/stall): each goes to the rank that is meant, or, where that has
// left, to whoever keeps its leave record. A part of Agent, which routes messages here.
//
// Threads: one at a time.
#pragma once

#include <cstdint>

#include "core/control/agent_state.hpp"

namespace plexus {

/// The group in which `rank` may send `message` to another rank; nullptr: there is none.
const AgentGroup* find_group(AgentState& state, uint32_t rank, const Message& message);

class Probes {
 public:
  explicit Probes(AgentState& state) : state_(state) {}
  /// A probe of a rank of this process.
  Result<void> take(uint32_t rank, Message message);
  /// A probe of another process.
  void take_from(uint32_t process, const Message& message);
  /// A leave record that a probe has asked for, or that it is not there.
  Result<void> take_answer(const Message& message);

 private:
  AgentState& state_;
};

}  // namespace plexus
