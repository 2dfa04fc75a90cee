// SPDX-License-Identifier: Apache-2.0
// The public headers as our own sources see them, and the conversions between public and inner
// handles.
#pragma once

#include <nccl.h>
#include <plexus.h>

#include "core/comm/communicator.hpp"

namespace plexus {

inline Communicator* inner(ncclComm_t comm) noexcept {
  return reinterpret_cast<Communicator*>(comm);
}
inline Communicator** inner(ncclComm_t* comm) noexcept {
  return reinterpret_cast<Communicator**>(comm);
}

}  // namespace plexus
