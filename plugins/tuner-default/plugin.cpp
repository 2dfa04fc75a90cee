// SPDX-License-Identifier: Apache-2.0
// The C table of tuner-default. All decisions are in model.cpp.
#include <memory>
#include <utility>

#include "plugins/support/abi_boundary.hpp"
#include "plugins/tuner-default/model.hpp"

using plexus::plugin::guard;
using plexus::plugin::Log;
using plexus::plugin::ok;
using plexus::plugin::Result;
using plexus::tuner_default::for_candidates;
using plexus::tuner_default::Model;

struct plexus_tuner_context {
  Model model;
};

namespace {

int32_t init(plexus_tuner_context_t** context,
             const plexus_tuner_comm_t* comm,
             plexus_log_fn callback,
             plexus_log_sink_t* sink) {
  const Log log(callback, sink);
  return guard(log, [&]() -> Result<void> {
    PLEXUS_TRY(model, Model::open(*comm, log));
    *context =
        std::make_unique<plexus_tuner_context>(plexus_tuner_context{std::move(model)}).release();
    return ok();
  });
}

int32_t get_times(plexus_tuner_context_t* context,
                  const plexus_tuner_call_t* call,
                  plexus_tuner_candidate_t* candidates,
                  uint32_t count,
                  uint32_t stride) {
  for_candidates(candidates, count, stride, [&](plexus_tuner_candidate_t& candidate) {
    context->model.predict(*call, candidate);
  });
  return PLEXUS_OK;
}

int32_t links_changed(plexus_tuner_context_t* context, const plexus_tuner_comm_t* comm) {
  context->model.follow(*comm);
  return PLEXUS_OK;
}

int32_t finalize(plexus_tuner_context_t* context) {
  const std::unique_ptr<plexus_tuner_context_t> owner(context);
  return PLEXUS_OK;
}

constexpr plexus_tuner_ops_t kOps = {
    .struct_size = sizeof(plexus_tuner_ops_t),
    .reserved = 0,
    .init = init,
    .get_times = get_times,
    .finalize = finalize,
    .links_changed = links_changed,
};

constexpr plexus_plugin_t kPlugin = {
    .magic = PLEXUS_PLUGIN_MAGIC,
    .struct_size = sizeof(plexus_plugin_t),
    .abi_major = PLEXUS_ABI_MAJOR,
    .abi_minor = PLEXUS_ABI_MINOR,
    .kind = PLEXUS_KIND_TUNER,
    .reserved = 0,
    .name = "tuner-default",
    .version = PLEXUS_VERSION,
    .net = nullptr,
    .tuner = &kOps,
};

}  // namespace

const plexus_plugin_t* plexus_plugin_query(uint32_t host_abi) {
  return host_abi >> 16 == PLEXUS_ABI_MAJOR ? &kPlugin : nullptr;
}
