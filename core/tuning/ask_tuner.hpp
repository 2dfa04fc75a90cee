// SPDX-License-Identifier: Apache-2.0
// The tuner's part in a choice: it is shown the possible candidates and states their times.
#pragma once

#include <cstddef>
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

}  // namespace plexus
