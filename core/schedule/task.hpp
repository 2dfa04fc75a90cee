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

/// All of a call but the addresses: calls that are equal in it are checked and planned alike.
struct CallShape {
  Collective collective = Collective::kAllReduce;
  int type = 0;
  int op = 0;
  int root = 0;
  bool has_send = false;  // the address is not NULL
  bool has_recv = false;
  bool in_place = false;
  bool of_vector = false;
  uint64_t count = 0;
  friend bool operator==(const CallShape&, const CallShape&) = default;
};

/// Report for tools (`plexus perf`): what the last collective on `comm` used.
struct LastChoice {
  const char* algorithm;
  const char* protocol;
  int channels;
};

}  // namespace plexus
