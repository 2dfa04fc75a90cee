// SPDX-License-Identifier: Apache-2.0
// tuner-default as a plugin. All decisions are in model.cpp; the table is that of
// plugins/support/tuner_table.hpp.
#include <utility>

#include "plugins/support/nccl_tuner_export.hpp"
#include "plugins/support/tuner_table.hpp"
#include "plugins/tuner-default/model.hpp"
#include "plugins/tuner-default/nccl_times.hpp"

struct plexus_tuner_context {
  static plexus::plugin::Result<plexus_tuner_context> open(const plexus_tuner_comm_t& comm,
                                                           const plexus::plugin::Log& log) {
    PLEXUS_TRY(model, plexus::tuner_default::Model::open(comm, log));
    return plexus_tuner_context{log, std::move(model)};
  }
  int32_t get_times(const plexus_tuner_call_t& call,
                    const plexus::plugin::Candidates& candidates) const {
    candidates.for_each(
        [&](plexus_tuner_candidate_t& candidate) { model.predict(call, candidate); });
    return PLEXUS_OK;
  }
  void follow(const plexus_tuner_comm_t& comm) { model.follow(comm); }

  plexus::plugin::Log log;
  plexus::tuner_default::Model model;
};

PLEXUS_TUNER_PLUGIN("tuner-default")
PLEXUS_EXPORT_NCCL_TUNER(plexus::tuner_default::NcclTuner, "tuner-default")
