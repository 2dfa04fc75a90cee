// SPDX-License-Identifier: Apache-2.0
// Programs of other formats name buffers as they like: in place, their only one is input before it
// is written and output afterwards. One execution tells which.
#pragma once

#include "core/programs/program_file.hpp"

namespace plexus {

/// The file with the buffers of its programs' steps as ours are, and the steps that complete a
/// value. `chunks`: of the larger buffer. An Error: the programs wait for each other, or store in
/// the caller's input. Nothing is proved yet.
Result<ProgramFile> resolve_programs(ProgramFile file, int chunks);

}  // namespace plexus
