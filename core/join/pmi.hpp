// SPDX-License-Identifier: Apache-2.0
// PMI-1, the line protocol by which Hydra (MPICH, Intel MPI) and Slurm (srun --mpi=pmi2) pass small
// values between the processes that they start, over the socket that PMI_FD names.
#pragma once

#include <string>

#include "core/base/clock.hpp"
#include "core/base/result.hpp"

namespace plexus {

/// Rank 0's `value` (letters and digits) on all ranks, which all call this, once in the life of a
/// process: the launcher closes the socket after it. `fd`: the text of PMI_FD.
[[nodiscard]] Result<std::string> pass_on_by_pmi(const std::string& fd,
                                                 int rank,
                                                 const std::string& value,
                                                 const Deadline& deadline);

}  // namespace plexus
