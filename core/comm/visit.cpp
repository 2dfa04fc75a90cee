// SPDX-License-Identifier: Apache-2.0
#include "core/comm/visit.hpp"

#include "core/comm/process.hpp"

namespace plexus {

Result<Visit> Visit::begin(Communicator* comm) {
  if (!comm->process().communicators.add_visit(comm)) {
    return fail(Code::kInvalidArgument,
                "the communicator was ended by ncclCommDestroy or ncclCommAbort");
  }
  return Visit(comm);
}

}  // namespace plexus
