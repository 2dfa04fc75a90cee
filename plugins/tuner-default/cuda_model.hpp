// SPDX-License-Identifier: Apache-2.0
// How long a call takes between CUDA ranks, and how many channels it should have: pure functions of
// what the host tells. What is different from host ranks: a call costs a launch, a hop costs
// microseconds by its protocol, channels work side by side, and ranks of one device share its
// memory.
//
// The numbers are those that NCCL publishes in the constants of its tuner ABI (latencies by link
// and protocol, what a channel and LL carry by GPU). Nothing here has been measured yet.
#pragma once

#include "plugins/tuner-default/cost_model.hpp"

namespace plexus::tuner_default {

/// Do all ranks compute on CUDA devices?
bool is_cuda(const plexus_tuner_comm_t& comm);

struct CudaAnswer {
  double time_us;  // < 0: it cannot say
  uint32_t channels;
};
/// Of a communicator that is_cuda(). `calibration` says what a network costs.
CudaAnswer predict_cuda(const Calibration& calibration,
                        const plexus_tuner_comm_t& comm,
                        const plexus_tuner_call_t& call,
                        const plexus_tuner_candidate_t& candidate);

}  // namespace plexus::tuner_default
