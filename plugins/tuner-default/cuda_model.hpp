// SPDX-License-Identifier: Apache-2.0
// The duration of a call between CUDA ranks, and the best number of channels: pure functions of
// what the host reports. Differences to host ranks: a call costs a launch, the cost of a hop
// depends on its protocol, channels work in parallel, and ranks of one device share its memory.
//
// The numbers are those that NCCL publishes in the constants of its tuner ABI (latencies by link
// and protocol, bandwidth of a channel and of LL by GPU), which have not been verified by
// measurements. Those of ranks of one process that share a device were measured.
#pragma once

#include "plugins/tuner-default/cost_model.hpp"

namespace plexus::tuner_default {

/// Whether all ranks compute on CUDA devices.
bool is_cuda(const plexus_tuner_comm_t& comm);

struct CudaAnswer {
  double time_us;  // < 0: unknown
  uint32_t channels;
};
/// For a communicator that is_cuda(). `calibration`: costs of the network.
CudaAnswer predict_cuda(const Calibration& calibration,
                        const plexus_tuner_comm_t& comm,
                        const plexus_tuner_call_t& call,
                        const plexus_tuner_candidate_t& candidate);

}  // namespace plexus::tuner_default
