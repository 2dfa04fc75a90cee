// SPDX-License-Identifier: Apache-2.0
// An all-to-all in place. Every chunk of the caller's one buffer is both sent and received, in
// orders that differ from algorithm to algorithm and from rank to rank, so that each loop begins
// with a copy of its input into scratch memory, which is what is sent.
//
// What a rank sends and receives stays as it was: ranks that call in place and ranks that do not
// may meet in one call, as MPI_IN_PLACE does not allow.
#pragma once

#include "kernels/layout/collective.hpp"
#include "kernels/program/program.hpp"

namespace plexus {

/// Whether calls in place need the copy. The programs of other collectives suit both forms.
constexpr bool stages_input(Collective collective) { return collective == Collective::kAllToAll; }

/// The program with an input that its output overwrites. The copy needs `program.chunks` chunks of
/// scratch memory more. Such programs are proved like all others (verify_programs()).
Program stage_input(Program program);

}  // namespace plexus
