// SPDX-License-Identifier: Apache-2.0
// ncclCollConfig_t::algSelection: which algorithms and protocols one call leaves to the choice.
//
//   selection = term { "," term }      any of the terms
//   term      = factor { "+" factor }  what all factors name
//   factor    = [ "^" ] name           "^": all but
//
// A name is the beginning of NCCL's (RING_LL, COLLNET_DIRECT_SIMPLE, SYMK_...) or of
// FAMILY_PROTOCOL for a family of NCCL_ALGO. Letters are of any case, blanks and empty pieces do
// not count.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.hpp"
#include "kernels/layout/protocol.hpp"
#include "kernels/program/algorithms.hpp"

namespace plexus {

/// A set of the combinations of a collective's algorithms (of the table, not from files) and the
/// protocols. 0 stands for no selection: all of them.
using AlgorithmSelection = uint64_t;

/// The set that holds one combination; 0 for an algorithm from a file, which has no name here.
AlgorithmSelection selection_of(const Algorithm& algorithm, Protocol protocol);

/// kInvalidArgument: `text` has an unknown name, a term that names nothing, or nothing for this
/// collective. Never 0.
Result<AlgorithmSelection> parse_selection(std::string_view text, Collective collective);

/// The names that select something for the collective.
std::vector<std::string> list_selectable(Collective collective);

}  // namespace plexus
