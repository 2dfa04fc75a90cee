// SPDX-License-Identifier: Apache-2.0
// A misbehaving tuner, built once per kind of misbehaviour (PLEXUS_WILD).
#include <atomic>
#include <cstdint>
#include <cstring>
#include <limits>
#include <stdexcept>

#include "plugin-api/plexus_tuner.h"

#define GOOD 0
#define FAILING 1
#define THROWING 2
#define NEGATIVE 3
#define HUGE_CHANNELS 4
#define REFUSING 5
#define TRIALS 6
#define ENDLESS 7
#define MOODY 8

struct plexus_tuner_context {};

namespace {

plexus_tuner_context only;

int32_t init(plexus_tuner_context_t** context,
             const plexus_tuner_comm_t* comm,
             plexus_log_fn /*log*/,
             plexus_log_sink_t* /*sink*/) {
  *context = &only;
  return PLEXUS_WILD == REFUSING || comm->nranks == 0 ? PLEXUS_SYSTEM_ERROR : PLEXUS_OK;
}

/// Tries the first candidates, with the shortest trials there are, and then takes one of them by
/// the last digits of the times: ranks with other times would take another. Wrong trials: one that
/// was not tried.
int32_t learn(const plexus_tuner_call_t& call,
              plexus_tuner_candidate_t* candidates,
              uint32_t count) {
  constexpr uint32_t kTried = 4;
  uint32_t chosen = call.trials_count % count;
  if (call.trials_count == kTried) {
    bool are_right = true;
    uint64_t sum_ns = 0;
    for (uint32_t i = 0; i < kTried; ++i) {
      const plexus_tuner_trial_t& trial = call.trials[i];
      const plexus_tuner_candidate_t& tried = candidates[i % count];
      are_right = are_right && trial.calls == PLEXUS_TRIAL_CALLS_MIN && trial.time_ns > 0 &&
                  std::strcmp(trial.algorithm, tried.algorithm) == 0 &&
                  std::strcmp(trial.protocol, tried.protocol) == 0;
      sum_ns += static_cast<uint64_t>(trial.time_ns);
    }
    chosen = are_right ? static_cast<uint32_t>(sum_ns % kTried) % count : count - 1;
  }
  for (uint32_t i = 0; i < count; ++i) {
    candidates[i].time_ns = i == chosen ? 1 : 1000;
    candidates[i].trial_calls = call.trials_count < kTried ? 1 : 0;  // clamped to the shortest
  }
  return PLEXUS_OK;
}

int32_t get_times(plexus_tuner_context_t* /*context*/,
                  const plexus_tuner_call_t* call,
                  plexus_tuner_candidate_t* candidates,
                  uint32_t count,
                  uint32_t /*stride*/) {
  if (PLEXUS_WILD == FAILING) {
    return PLEXUS_INTERNAL_ERROR;
  }
  if (PLEXUS_WILD == THROWING) {
    throw std::runtime_error("wild");
  }
  if (PLEXUS_WILD == TRIALS) {
    return learn(*call, candidates, count);
  }
  static std::atomic<uint32_t> asked{0};
  const uint32_t mood = asked.fetch_add(1) % 2;
  for (uint32_t i = 0; i < count; ++i) {
    // The tree, or of registered memory the ring, if there is one, else the last.
    const char* const best = call->registered != 0 ? "ring" : "tree";
    const bool wanted = std::strcmp(candidates[i].algorithm, best) == 0;
    candidates[i].time_ns = wanted ? 1 : 1000 - static_cast<int64_t>(i);
    if (PLEXUS_WILD == ENDLESS || (PLEXUS_WILD == MOODY && call->trials_count == 0)) {
      candidates[i].trial_calls = PLEXUS_TRIAL_CALLS_MIN;  // whatever was tried
    }
    if (PLEXUS_WILD == MOODY && call->trials_count > 0) {
      candidates[i].time_ns += mood;  // not of its arguments alone
    }
    if (PLEXUS_WILD == NEGATIVE) {
      candidates[i].time_ns = std::numeric_limits<int64_t>::min();
    }
    if (PLEXUS_WILD == HUGE_CHANNELS) {
      candidates[i].channels = std::numeric_limits<uint32_t>::max();
      candidates[i].chunk_bytes = 0;
      candidates[i].algorithm = nullptr;
      candidates[i].channels_max = 0;
    }
  }
  return PLEXUS_OK;
}

int32_t finalize(plexus_tuner_context_t* /*context*/) { return PLEXUS_OK; }

constexpr plexus_tuner_ops_t kOps = {
    sizeof(plexus_tuner_ops_t), 0, init, get_times, finalize, nullptr};
constexpr plexus_plugin_t kPlugin = {PLEXUS_PLUGIN_MAGIC,
                                     sizeof(plexus_plugin_t),
                                     PLEXUS_ABI_MAJOR,
                                     PLEXUS_ABI_MINOR,
                                     PLEXUS_KIND_TUNER,
                                     0,
                                     "wild",
                                     "1",
                                     nullptr,
                                     &kOps};

}  // namespace

extern "C" PLEXUS_PLUGIN_EXPORT const plexus_plugin_t* plexus_plugin_query(uint32_t /*host_abi*/) {
  return &kPlugin;
}
