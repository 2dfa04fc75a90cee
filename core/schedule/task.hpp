// SPDX-License-Identifier: Apache-2.0
// One user call as a value: what `core/api` checked and `core/schedule` turns into a plan.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/device/device_runtime.hpp"
#include "kernels/layout/collective.hpp"
#include "kernels/layout/types.hpp"

namespace plexus {

class Communicator;
class HostStream;

/// `count` follows the public call: elements per rank as its documentation says (AllGather: sent by
/// each rank, ReduceScatter: received by each, AlltoAll/Gather/Scatter: per pair of ranks).
struct Task {
  Communicator* comm = nullptr;
  Collective collective = Collective::kAllReduce;
  DataType type = DataType::kFloat32;
  ReduceOp op;   // complete: averages and user scalars are already resolved
  int root = 0;  // root of a rooted collective; the peer of kSend / kRecv
  /// Of kSend / kRecv: a message of plexusAllToAllV or plexusAllGatherV. Those pair with each
  /// other, never with what ncclSend and ncclRecv exchange beside them.
  bool of_vector = false;
  const void* send = nullptr;
  void* recv = nullptr;
  uint64_t count = 0;
  HostStream* stream = nullptr;          // of host ranks; nullptr: inline, complete on return
  DeviceStream device_stream = nullptr;  // of CUDA ranks, as the user passed it
  /// The multiplier's address for ncclScalarDevice: read when the collective runs. nullptr: `op`
  /// holds it.
  const void* scalar = nullptr;
};

}  // namespace plexus
