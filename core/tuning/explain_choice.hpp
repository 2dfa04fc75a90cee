// SPDX-License-Identifier: Apache-2.0
// A choice as a line of text, for a user who asked why.
#pragma once

#include <string>

#include "core/tuning/choose_algorithm.hpp"

namespace plexus {

/// "all_reduce of 64 bytes on 4 ranks: tree LL, 1 channel, 3.1 us expected, by the tuner; next:
/// ring LL 4.0 us; not possible: collnetdirect (there is no collnet plugin)".
std::string explain_choice(const Decision& decision, const ChoiceInput& input);
/// Explains a choice that was made without a decision, by `by`.
std::string explain_choice(const Choice& choice, const ChoiceInput& input, const char* by);

}  // namespace plexus
