// SPDX-License-Identifier: Apache-2.0
// An algorithm of the table as a program file.
#pragma once

#include "core/programs/program_file.hpp"
#include "kernels/program/algorithms.hpp"

namespace plexus {

/// The programs that `algorithm` records for `nranks` ranks on one host, in rank order, channel 0.
Result<ProgramFile> export_program(const Algorithm& algorithm, int nranks, int root);

}  // namespace plexus
