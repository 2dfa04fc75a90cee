// SPDX-License-Identifier: Apache-2.0
// tuner-online as a plugin: predictions of tuner-default's model, and the policy (policy.cpp). The
// table is that of plugins/support/tuner_table.hpp.
#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include "plugins/support/nccl_tuner_export.hpp"
#include "plugins/support/tuner_table.hpp"
#include "plugins/tuner-default/model.hpp"
#include "plugins/tuner-default/nccl_times.hpp"
#include "plugins/tuner-online/policy.hpp"

using plexus::plugin::Candidates;
using plexus::plugin::fail;
using plexus::plugin::Log;
using plexus::plugin::ok;
using plexus::plugin::Result;
using plexus::tuner_default::Model;
using plexus::tuner_online::Alternative;
using plexus::tuner_online::decide;
using plexus::tuner_online::Decision;
using plexus::tuner_online::list_alternatives;

struct plexus_tuner_context {
  static Result<plexus_tuner_context> open(const plexus_tuner_comm_t& comm, const Log& log);
  Result<void> get_times(const plexus_tuner_call_t& call, const Candidates& candidates) const;
  void follow(const plexus_tuner_comm_t& comm) { model.follow(comm); }

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

}  // namespace

Result<plexus_tuner_context> plexus_tuner_context::open(const plexus_tuner_comm_t& comm,
                                                        const Log& log) {
  PLEXUS_TRY(budget, read_budget());
  PLEXUS_TRY(model, Model::open(comm, log));
  return plexus_tuner_context{log, std::move(model), budget};
}

Result<void> plexus_tuner_context::get_times(const plexus_tuner_call_t& call,
                                             const Candidates& candidates) const {
  std::vector<plexus_tuner_candidate_t> predicted;
  candidates.for_each([&](plexus_tuner_candidate_t& candidate) {
    model.predict(call, candidate);
    predicted.push_back(copy_of(candidate));
  });
  const std::vector<Alternative> alternatives = list_alternatives(predicted, call.size_bytes);
  if (alternatives.empty()) {
    return ok();
  }
  const Decision decision = decide(alternatives, trials_of(call), budget);
  const Alternative& alternative = alternatives[decision.alternative];
  // The decision has to be the shortest time.
  const int64_t time_ns = alternatives.front().predicted_ns;
  size_t place = 0;
  candidates.for_each([&](plexus_tuner_candidate_t& candidate) {
    if (place++ != alternative.candidate) {
      candidate.time_ns = candidate.time_ns < 0 ? -1 : std::max(candidate.time_ns, time_ns + 1);
      return;
    }
    candidate.time_ns = time_ns;
    candidate.channels = alternative.channels;
    if (candidate.struct_size >=
        offsetof(plexus_tuner_candidate_t, trial_calls) + sizeof(candidate.trial_calls)) {
      candidate.trial_calls = decision.calls;
    }
  });
  return ok();
}

PLEXUS_TUNER_PLUGIN("tuner-online")
PLEXUS_EXPORT_NCCL_TUNER(plexus::tuner_default::NcclTuner, "tuner-online")
