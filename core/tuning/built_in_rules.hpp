// SPDX-License-Identifier: Apache-2.0
// Which candidate serves a call when no tuner says: rules by size and number of ranks.
#pragma once

#include <cstddef>
#include <span>

#include "core/tuning/candidate.hpp"

namespace plexus {

/// The place of the chosen candidate; candidates.size(): none is possible.
size_t choose_by_rules(std::span<const Candidate> candidates, const ChoiceInput& input);

}  // namespace plexus
