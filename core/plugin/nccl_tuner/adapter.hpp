// SPDX-License-Identifier: Apache-2.0
// Makes a tuner of NCCL's ABI a native one: candidates become a cost table, and the changed table
// becomes times.
#pragma once

#include <memory>

#include "core/base/result.hpp"
#include "core/plugin/nccl_tuner/library_tuner.hpp"
#include "core/plugin/tuner_source.hpp"

namespace plexus::nccl_tuner {

/// Initialises the tuner for `comm`. Its cost tables begin with the times of `model`; nullptr:
/// there is none. An Error says why it did not start.
[[nodiscard]] Result<std::unique_ptr<TunerSource>> start(Choice choice,
                                                         const plexus_tuner_comm_t& comm,
                                                         std::unique_ptr<TunerSource> model);

}  // namespace plexus::nccl_tuner
