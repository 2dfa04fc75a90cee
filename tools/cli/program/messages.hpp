// SPDX-License-Identifier: Apache-2.0
// A program's messages as a workload, which GOAL and Chakra can say.
#pragma once

#include "core/programs/program_file.hpp"
#include "tools/workload/workload.hpp"

namespace plexus {

/// Of a call whose larger buffer has so many bytes. Reductions and copies take no time.
Workload messages_of(const ProgramFile& file, uint64_t bytes);

}  // namespace plexus
