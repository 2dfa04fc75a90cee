// SPDX-License-Identifier: Apache-2.0
// The source of a communicator's times: a native tuner (tuner_plugin.cpp) or a library of NCCL's
// tuner ABI (nccl_tuner/). `Tuner` calls it, checks its answers and logs its failures.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "plugin-api/plexus_tuner.h"

#include "core/base/result.hpp"

namespace plexus {

/// Threads: one at a time.
class TunerSource {
 public:
  virtual ~TunerSource() = default;
  /// True: times, channels and chunk_bytes of `candidates` are its unchecked answer. False: it has
  /// no opinion on this call. `built_in`: index of the candidate that would be used without a
  /// tuner.
  virtual Result<bool> get_times(const plexus_tuner_call_t& call,
                                 std::span<plexus_tuner_candidate_t> candidates,
                                 size_t built_in) = 0;
  /// The links have changed. False: it cannot be told, and goes on with what it knows.
  virtual Result<bool> change_links(const plexus_tuner_comm_t& /*comm*/) { return false; }
  /// "tuner-default 0.1.0", for logs.
  [[nodiscard]] virtual std::string name() const = 0;
};

}  // namespace plexus
