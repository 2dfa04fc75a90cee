// SPDX-License-Identifier: Apache-2.0
// The table of a tuner, made from the plugin's plexus_tuner_context: every entry is one `guard`
// statement over a member function of it. In the plugin's .cpp, outside of namespaces:
//
//   struct plexus_tuner_context {
//     static Result<plexus_tuner_context> open(const plexus_tuner_comm_t& comm, const Log& log);
//     Result<void> get_times(const plexus_tuner_call_t& call, const Candidates& candidates);
//     void follow(const plexus_tuner_comm_t& comm);  // its links have changed
//     Log log;
//   };
//   PLEXUS_TUNER_PLUGIN("tuner-default")
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "plugin-api/plexus_tuner.h"

#include "plugins/support/abi_boundary.hpp"
#include "plugins/support/descriptor.hpp"
#include "plugins/support/handle.hpp"

namespace plexus::plugin {

/// What a call may use: `count` candidates, `stride` bytes apart.
struct Candidates {
  plexus_tuner_candidate_t* first;
  uint32_t count;
  uint32_t stride;
  template <class Use>
  void for_each(const Use& use) const {
    auto* const bytes = reinterpret_cast<std::byte*>(first);
    for (uint32_t i = 0; i < count; ++i) {
      use(*reinterpret_cast<plexus_tuner_candidate_t*>(bytes + size_t{i} * stride));
    }
  }
};

template <class Context>
struct TunerTable {
  static int32_t init(Context** context,
                      const plexus_tuner_comm_t* comm,
                      plexus_log_fn callback,
                      plexus_log_sink_t* sink) {
    const Log log(callback, sink);
    return guard(log, [&]() -> Result<void> {
      PLEXUS_TRY(made, Context::open(*comm, log));
      *context = give_to_host(std::make_unique<Context>(std::move(made)));
      return ok();
    });
  }
  static int32_t get_times(Context* context,
                           const plexus_tuner_call_t* call,
                           plexus_tuner_candidate_t* candidates,
                           uint32_t count,
                           uint32_t stride) {
    return guard(context->log, [&] {
      return context->get_times(*call, {candidates, count, stride});
    });
  }
  static int32_t finalize(Context* context) {
    take_from_host(context);
    return PLEXUS_OK;
  }
  static int32_t links_changed(Context* context, const plexus_tuner_comm_t* comm) {
    return guard(context->log, [&]() -> Result<void> {
      context->follow(*comm);
      return ok();
    });
  }
  static constexpr plexus_tuner_ops_t make() {
    return {
        .struct_size = sizeof(plexus_tuner_ops_t),
        .reserved = 0,
        .init = init,
        .get_times = get_times,
        .finalize = finalize,
        .links_changed = links_changed,
    };
  }
};

}  // namespace plexus::plugin

/// For a plugin's .cpp, outside of namespaces, once.
#define PLEXUS_TUNER_PLUGIN(plugin_name)                                                          \
  namespace {                                                                                     \
  constexpr plexus_tuner_ops_t kOps = ::plexus::plugin::TunerTable<plexus_tuner_context>::make(); \
  constexpr plexus_plugin_t kPlugin =                                                             \
      ::plexus::plugin::describe({.name = plugin_name, .tuner = &kOps});                          \
  }                                                                                               \
  const plexus_plugin_t* plexus_plugin_query(uint32_t host_abi) {                                 \
    return ::plexus::plugin::answer(host_abi, kPlugin);                                           \
  }
