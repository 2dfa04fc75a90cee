// SPDX-License-Identifier: Apache-2.0
// The C table of tuner-online: predictions of tuner-default's model, and the policy (policy.cpp).
#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <utility>

#include "plugins/support/abi_boundary.hpp"
#include "plugins/tuner-default/model.hpp"
#include "plugins/tuner-online/policy.hpp"

using plexus::plugin::fail;
using plexus::plugin::guard;
using plexus::plugin::Log;
using plexus::plugin::ok;
using plexus::plugin::Result;
using plexus::tuner_default::for_candidates;
using plexus::tuner_default::Model;
using plexus::tuner_online::decide;
using plexus::tuner_online::Decision;
using plexus::tuner_online::list_ways;
using plexus::tuner_online::Way;

struct plexus_tuner_context {
  Log log;
  Model model;
  double budget;
};

namespace {

constexpr int kBudgetPercent = 10;
constexpr int kBudgetPercentMost = 1000;

/// PLEXUS_ONLINE_BUDGET, in percent.
Result<double> read_budget() {
  // NOLINTNEXTLINE(concurrency-mt-unsafe): settings are read at init only
  const char* const text = std::getenv("PLEXUS_ONLINE_BUDGET");
  int percent = kBudgetPercent;
  if (text != nullptr && *text != '\0') {
    const char* const end = text + std::strlen(text);
    const auto [rest, error] = std::from_chars(text, end, percent);
    if (error != std::errc() || rest != end || percent < 1 || percent > kBudgetPercentMost) {
      return fail(PLEXUS_INVALID_ARGUMENT,
                  "PLEXUS_ONLINE_BUDGET is '{}': expects percent, a number from 1 to {}", text,
                  kBudgetPercentMost);
    }
  }
  return percent / 100.0;
}

int32_t init(plexus_tuner_context_t** context,
             const plexus_tuner_comm_t* comm,
             plexus_log_fn callback,
             plexus_log_sink_t* sink) {
  const Log log(callback, sink);
  return guard(log, [&]() -> Result<void> {
    PLEXUS_TRY(budget, read_budget());
    PLEXUS_TRY(model, Model::open(*comm, log));
    *context =
        std::make_unique<plexus_tuner_context>(plexus_tuner_context{log, std::move(model), budget})
            .release();
    return ok();
  });
}

/// Empty with a host that has none.
std::span<const plexus_tuner_trial_t> trials_of(const plexus_tuner_call_t& call) {
  constexpr size_t kEnd =
      offsetof(plexus_tuner_call_t, trials_count) + sizeof(plexus_tuner_call_t::trials_count);
  return call.struct_size >= kEnd ? std::span(call.trials, call.trials_count)
                                  : std::span<const plexus_tuner_trial_t>();
}

/// What is known by every version of the host.
plexus_tuner_candidate_t copy_of(const plexus_tuner_candidate_t& candidate) {
  plexus_tuner_candidate_t copy{};
  std::memcpy(&copy, &candidate, std::min<size_t>(candidate.struct_size, sizeof(copy)));
  return copy;
}

int32_t get_times(plexus_tuner_context_t* context,
                  const plexus_tuner_call_t* call,
                  plexus_tuner_candidate_t* candidates,
                  uint32_t count,
                  uint32_t stride) {
  return guard(context->log, [&]() -> Result<void> {
    std::vector<plexus_tuner_candidate_t> predicted;
    for_candidates(candidates, count, stride, [&](plexus_tuner_candidate_t& candidate) {
      context->model.predict(*call, candidate);
      predicted.push_back(copy_of(candidate));
    });
    const std::vector<Way> ways = list_ways(predicted, call->size_bytes);
    if (ways.empty()) {
      return ok();
    }
    const Decision decision = decide(ways, trials_of(*call), context->budget);
    const Way& way = ways[decision.way];
    // The decision has to be the shortest time.
    const int64_t time_ns = ways.front().predicted_ns;
    size_t place = 0;
    for_candidates(candidates, count, stride, [&](plexus_tuner_candidate_t& candidate) {
      if (place++ != way.candidate) {
        candidate.time_ns = candidate.time_ns < 0 ? -1 : std::max(candidate.time_ns, time_ns + 1);
        return;
      }
      candidate.time_ns = time_ns;
      candidate.channels = way.channels;
      if (candidate.struct_size >=
          offsetof(plexus_tuner_candidate_t, trial_calls) + sizeof(candidate.trial_calls)) {
        candidate.trial_calls = decision.calls;
      }
    });
    return ok();
  });
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
    .name = "tuner-online",
    .version = PLEXUS_VERSION,
    .net = nullptr,
    .tuner = &kOps,
};

}  // namespace

const plexus_plugin_t* plexus_plugin_query(uint32_t host_abi) {
  return host_abi >> 16 == PLEXUS_ABI_MAJOR ? &kPlugin : nullptr;
}
