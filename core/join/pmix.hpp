// SPDX-License-Identifier: Apache-2.0
// PMIx, by which Open MPI's mpirun, PRRTE and srun --mpi=pmix pass values between the processes
// that they start. libpmix is loaded when it is needed: nothing depends on it.
#pragma once

#include <functional>
#include <string>

#include "core/base/clock.hpp"
#include "core/base/result.hpp"

namespace plexus {

struct PmixAnswer {
  int nranks;
  std::string value;
};

/// The value that rank 0 makes, on all ranks, which all call this. kInvalidUsage: libpmix cannot be
/// loaded. `make_value` is called in rank 0 only.
[[nodiscard]] Result<PmixAnswer> pass_on_by_pmix(
    int rank, const std::function<Result<std::string>()>& make_value, const Deadline& deadline);

}  // namespace plexus
