// SPDX-License-Identifier: Apache-2.0
// An algorithm of the table as a program file.
#pragma once

#include "core/programs/program_file.hpp"
#include "kernels/program/algorithms.hpp"

namespace plexus {

struct ExportInput {
  int nranks = 2;
  int root = 0;
  bool joins = false;  // in the algorithm's form with messages of several chunks
};

/// The programs that `algorithm` records for so many ranks on one host, in rank order, channel 0.
/// An Error says what cannot be exported.
Result<ProgramFile> export_program(const Algorithm& algorithm, const ExportInput& input);

}  // namespace plexus
