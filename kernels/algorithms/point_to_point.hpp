// SPDX-License-Identifier: Apache-2.0
// Send and receive: one verb each. Chunks per loop: 1. A group's sends and receives are separate
// programs that run concurrently, so that two ranks which both send first do not wait for each
// other.
#pragma once

#include "kernels/algorithms/prims.hpp"

namespace plexus {

template <class Prims>
PLEXUS_HOST_DEVICE void point_to_point_send(Prims& prims, int peer) {
  prims.send(Buffer::kInput, 0, peer);
}

template <class Prims>
PLEXUS_HOST_DEVICE void point_to_point_recv(Prims& prims, int peer) {
  prims.recv(peer, Buffer::kOutput, 0);
}

}  // namespace plexus
