// SPDX-License-Identifier: Apache-2.0
#include "core/comm/visit.hpp"

#include "core/comm/process.hpp"

namespace plexus {

Result<Visit> Visit::begin(Process& process, Communicator* comm) {
  if (!process.communicators.add_visit(comm)) {
    return fail(Code::kInvalidArgument,
                "the communicator was ended by ncclCommDestroy or ncclCommAbort");
  }
  return Visit(comm);
}

std::vector<Visit> Visit::begin_all(Process& process,
                                    const std::function<bool(const Communicator&)>& matches) {
  std::vector<Visit> visits;
  for (Communicator* const comm : process.communicators.add_visits(matches)) {
    visits.push_back(Visit(comm));
  }
  return visits;
}

}  // namespace plexus
