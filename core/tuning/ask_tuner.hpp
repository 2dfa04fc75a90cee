// SPDX-License-Identifier: Apache-2.0
// The tuner's part in a choice: it is shown the possible candidates and states their times.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "core/plugin/tuner_plugin.hpp"
#include "core/tuning/candidate.hpp"

namespace plexus {

/// Fills in predicted_us, channels and chunk_bytes as the tuner says; the place of the candidate
/// with the shortest time, nullopt when it gave none. `by_rules`: the place of the built-in choice.
std::optional<size_t> ask_tuner(std::span<Candidate> candidates,
                                const ChoiceInput& input,
                                size_t by_rules,
                                Tuner& tuner);

/// The messages of a group (ncclSend, ncclRecv) of one rank with others, of the direction with
/// more.
struct MessageGroup {
  uint64_t bytes = 0;
  uint32_t messages = 0;
  uint32_t over_net = 0;  // of the messages
  uint32_t over_xdc = 0;
  bool both_ways = false;  // it sends and receives, as all ranks then do
  int nranks = 1;
  uint32_t slot_bytes = 0;
};
/// The tuner's time in us for the whole group; nullopt: it has none.
std::optional<double> ask_tuner(const MessageGroup& group, Tuner& tuner);

/// The tuner's time in us for what ranks do in the call, without their waiting for each other: that
/// of one of many calls in which data goes one way, so that a rank may be ahead by several.
std::optional<double> ask_tuner_for_work(const Choice& choice,
                                         const ChoiceInput& input,
                                         Tuner& tuner);

}  // namespace plexus
