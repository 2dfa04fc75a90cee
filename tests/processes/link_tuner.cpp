// SPDX-License-Identifier: Apache-2.0
// A tuner whose choice says what it was told of the links between datacenters: the tree where they
// have what they had at init, else the hierarchical algorithm.
#include <cstring>
#include <memory>

#include "plugin-api/plexus_tuner.h"

struct plexus_tuner_context {
  uint64_t mbit_per_s_at_init;
  uint64_t mbit_per_s;
};

namespace {

int32_t init(plexus_tuner_context_t** context,
             const plexus_tuner_comm_t* comm,
             plexus_log_fn /*log*/,
             plexus_log_sink_t* /*sink*/) {
  const uint64_t mbit_per_s = comm->links[PLEXUS_LINK_XDC].bandwidth_mbit_per_s;
  *context = std::make_unique<plexus_tuner_context>(plexus_tuner_context{mbit_per_s, mbit_per_s})
                 .release();
  return PLEXUS_OK;
}

int32_t get_times(plexus_tuner_context_t* context,
                  const plexus_tuner_call_t* /*call*/,
                  plexus_tuner_candidate_t* candidates,
                  uint32_t count,
                  uint32_t /*stride*/) {
  const bool is_whole = context->mbit_per_s == context->mbit_per_s_at_init;
  for (uint32_t i = 0; i < count; ++i) {
    const bool wanted =
        std::strcmp(candidates[i].algorithm, is_whole ? "tree" : "hierarchical") == 0;
    candidates[i].time_ns = wanted ? 1 : 1000;
  }
  return PLEXUS_OK;
}

int32_t finalize(plexus_tuner_context_t* context) {
  const std::unique_ptr<plexus_tuner_context> owner(context);
  return PLEXUS_OK;
}

int32_t links_changed(plexus_tuner_context_t* context, const plexus_tuner_comm_t* comm) {
  context->mbit_per_s = comm->links[PLEXUS_LINK_XDC].bandwidth_mbit_per_s;
  return PLEXUS_OK;
}

constexpr plexus_tuner_ops_t kOps = {.struct_size = sizeof(plexus_tuner_ops_t),
                                     .reserved = 0,
                                     .init = init,
                                     .get_times = get_times,
                                     .finalize = finalize,
                                     .links_changed = links_changed};
constexpr plexus_plugin_t kPlugin = {.magic = PLEXUS_PLUGIN_MAGIC,
                                     .struct_size = sizeof(plexus_plugin_t),
                                     .abi_major = PLEXUS_ABI_MAJOR,
                                     .abi_minor = PLEXUS_ABI_MINOR,
                                     .kind = PLEXUS_KIND_TUNER,
                                     .reserved = 0,
                                     .name = "link",
                                     .version = "1",
                                     .net = nullptr,
                                     .tuner = &kOps};

}  // namespace

extern "C" PLEXUS_PLUGIN_EXPORT const plexus_plugin_t* plexus_plugin_query(uint32_t /*host_abi*/) {
  return &kPlugin;
}
