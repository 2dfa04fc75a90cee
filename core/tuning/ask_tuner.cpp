// SPDX-License-Identifier: Apache-2.0
#include "core/tuning/ask_tuner.hpp"

#include <algorithm>
#include <vector>

namespace plexus {
namespace {

plexus_tuner_candidate_t describe(const Choice& choice, const ChoiceInput& input) {
  const LoopCost cost = cost_of(choice, input);
  plexus_tuner_candidate_t candidate{};
  candidate.struct_size = sizeof(candidate);
  candidate.algorithm = choice.algorithm->family;
  candidate.protocol = name(choice.protocol);
  candidate.rounds = static_cast<uint32_t>(cost.rounds);
  candidate.chunks_per_loop = static_cast<uint32_t>(cost.chunks);
  candidate.chunks_moved = static_cast<uint32_t>(cost.chunks_moved);
  const int most = channels_max_of(*choice.algorithm, input);
  candidate.channels_min = static_cast<uint32_t>(std::min(input.channels_min, most));
  candidate.channels_max = static_cast<uint32_t>(most);
  candidate.time_ns = -1;
  candidate.channels = static_cast<uint32_t>(choice.channels);
  candidate.chunk_bytes = choice.chunk_bytes;
  candidate.chunks_in_all = static_cast<uint64_t>(cost.chunks_in_all);
  candidate.chunks_reduced = static_cast<uint32_t>(cost.chunks_reduced);
  candidate.xdc_rounds = static_cast<uint32_t>(cost.xdc_rounds);
  candidate.messages_moved = static_cast<uint32_t>(cost.messages_moved);
  candidate.xdc_chunks = static_cast<uint64_t>(cost.xdc_chunks_out());
  candidate.net_rounds = static_cast<uint32_t>(cost.net_rounds);
  candidate.net_chunks = static_cast<uint32_t>(cost.net_chunks);
  candidate.net_chunks_in_all = static_cast<uint64_t>(cost.net_chunks_in_all);
  return candidate;
}

plexus_tuner_call_t describe(const ChoiceInput& input) {
  plexus_tuner_call_t call{};
  call.struct_size = sizeof(call);
  call.registered = input.in_windows ? 1 : 0;
  call.collective = name(input.collective);
  call.size_bytes = input.size_bytes;
  call.element_bytes = input.element_bytes;
  call.calls_in_group = input.calls_in_group;
  return call;
}

/// The tuner's time in us for the one candidate.
std::optional<double> ask_about(plexus_tuner_candidate_t candidate,
                                const plexus_tuner_call_t& call,
                                Tuner& tuner) {
  if (!tuner.get_times(call, {&candidate, 1}, 0) || candidate.time_ns < 0) {
    return std::nullopt;
  }
  return static_cast<double>(candidate.time_ns) / 1000;
}

}  // namespace

std::optional<size_t> ask_tuner(std::span<Candidate> candidates,
                                const ChoiceInput& input,
                                size_t by_rules,
                                Tuner& tuner) {
  std::vector<plexus_tuner_candidate_t> asked;
  std::vector<size_t> places;
  size_t built_in = 0;
  for (size_t i = 0; i < candidates.size(); ++i) {
    if (candidates[i].possible) {
      built_in = i == by_rules ? asked.size() : built_in;
      const Choice& choice = candidates[i].choice;
      asked.push_back(describe(choice, input));
      places.push_back(i);
    }
  }
  plexus_tuner_call_t call = describe(input);
  std::vector<plexus_tuner_trial_t> trials;
  for (const Trial& trial : input.trials) {
    trials.push_back({.algorithm = trial.choice.algorithm->family,
                      .protocol = name(trial.choice.protocol),
                      .channels = static_cast<uint32_t>(trial.choice.channels),
                      .chunk_bytes = trial.choice.chunk_bytes,
                      .calls = trial.calls,
                      .reserved = 0,
                      .time_ns = trial.time_ns});
  }
  call.trials = trials.data();
  call.trials_count = static_cast<uint32_t>(trials.size());
  if (asked.empty() || !tuner.get_times(call, asked, built_in)) {
    return std::nullopt;
  }
  std::optional<size_t> chosen;
  int64_t shortest_ns = 0;
  for (size_t i = 0; i < asked.size(); ++i) {
    Candidate& candidate = candidates[places[i]];
    candidate.choice.channels = static_cast<int>(asked[i].channels);
    candidate.choice.chunk_bytes = asked[i].chunk_bytes;
    candidate.trial_calls = asked[i].trial_calls;
    if (asked[i].time_ns >= 0) {
      candidate.predicted_us = static_cast<double>(asked[i].time_ns) / 1000;
      if (!chosen.has_value() || asked[i].time_ns < shortest_ns) {
        chosen = places[i];
        shortest_ns = asked[i].time_ns;
      }
    }
  }
  return chosen;
}

std::optional<double> ask_tuner(const MessageGroup& group, Tuner& tuner) {
  plexus_tuner_candidate_t candidate{};
  candidate.struct_size = sizeof(candidate);
  candidate.algorithm = "pairwise";
  candidate.protocol = name(Protocol::kSimple);
  candidate.rounds = group.both_ways ? 1 : 0;
  candidate.chunks_per_loop = candidate.chunks_moved = candidate.messages_moved = group.messages;
  candidate.channels_min = candidate.channels_max = candidate.channels = 1;
  candidate.time_ns = -1;
  candidate.chunk_bytes = group.slot_bytes;
  const uint64_t ranks = group.both_ways ? static_cast<uint64_t>(group.nranks) : 1;
  candidate.chunks_in_all = ranks * group.messages;
  candidate.xdc_rounds = group.over_xdc > 0 ? 1 : 0;
  candidate.xdc_chunks = group.over_xdc;
  candidate.net_rounds = group.over_net > 0 ? 1 : 0;
  candidate.net_chunks = group.over_net;
  candidate.net_chunks_in_all = ranks * group.over_net;
  plexus_tuner_call_t call{};
  call.struct_size = sizeof(call);
  call.collective = "sendrecv";
  call.size_bytes = group.bytes;
  call.element_bytes = 1;
  call.calls_in_group = group.messages;
  return ask_about(candidate, call, tuner);
}

std::optional<double> ask_tuner_for_work(const Choice& choice,
                                         const ChoiceInput& input,
                                         Tuner& tuner) {
  plexus_tuner_candidate_t candidate = describe(choice, input);
  candidate.rounds = candidate.net_rounds = candidate.xdc_rounds = 0;
  return ask_about(candidate, describe(input), tuner);
}

}  // namespace plexus
