// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/tune/messages.hpp"

#include <algorithm>
#include <cmath>

#include <nlohmann/json.hpp>

#include "kernels/program/algorithms.hpp"
#include "tools/cli/sim/calibration.hpp"
#include "tools/cli/sim/call.hpp"
#include "tools/cli/tune/fit.hpp"

namespace plexus::tune {
namespace {

struct SmallCosts {
  double call_us;   // of a call, whatever it is
  double pair_us;   // of a small message at its sender and its receiver
  double early_us;  // of the two, what is done when the message has already arrived
};

/// Two equal chunks make a ring two exchanges in one call; one chunk makes it a message and its
/// answer.
SmallCosts fit_small(const MessageTimes& times) {
  const double exchange = times.sum.at(kChunkBytes);
  SmallCosts costs{};
  costs.call_us = std::clamp(2 * exchange - times.ring_two_chunks, 0.0, exchange / 2);
  costs.pair_us = exchange - costs.call_us;
  costs.early_us = std::clamp(costs.pair_us - (times.ring_one_chunk - costs.call_us) / 2, 0.0,
                              costs.pair_us / 2);
  return costs;
}

/// Which end of a message costs more: over sockets the sender's, whose system call carries
/// it to the receiver's socket; in memory the receiver's, which fetches it from the other core.
nlohmann::ordered_json format_link(const MessageLink& link) {
  const MessageTimes& times = link.times;
  const SmallCosts small = fit_small(times);
  const bool sends_slowly = link.name == "net";
  nlohmann::ordered_json json;
  json["slot_bytes"] = link.slot_bytes;
  json["call_us"] = small.call_us;
  json["early_us"] = small.early_us;
  for (const auto& [bytes, exchange] : times.exchange) {
    const double pair = std::max(exchange - small.call_us, exchange / 2);
    // A rank that only sends, or receives, is done with the next message while the other one works.
    const double more = std::clamp(times.broadcast.at(bytes) - small.call_us, pair / 2, pair);
    const double send = sends_slowly ? more : pair - more;
    const double recv = pair - send;
    const auto combine_of = [&](double sum) {
      return std::max(sum - small.call_us - send, recv / 2);
    };
    json["bytes"].push_back(bytes);
    json["send_us"].push_back(send);
    json["recv_us"].push_back(recv);
    json["combine_us"].push_back(combine_of(times.sum.at(bytes)));
    json["combine_apart_us"].push_back(combine_of(times.sum_out.at(bytes)));
    json["copy_us"].push_back(
        std::max(0.0, times.broadcast_out.at(bytes) - times.broadcast.at(bytes)));
  }
  return json;
}

/// The cost of a turn with which the simulator predicts the shared calls, in the geometric mean as
/// slow as they were measured. `messages`: without it.
double fit_turn(const MessageHost& host, const nlohmann::ordered_json& messages) {
  const auto parsed = parse_sim_calibration(nlohmann::ordered_json{{"messages", messages}}.dump());
  if (host.shared.empty() || parsed.has_error()) {
    return 0;
  }
  SimOptions options;
  options.nranks = options.ranks_per_node = host.shared_ranks;
  options.calibration = parsed.value();
  const auto is_too_slow = [&](double turn_us) {
    options.calibration->turn_us = turn_us;
    double slower = 0;
    for (const SharedCall& call : host.shared) {
      options.calls = call.calls;
      const auto row =
          simulate_call(options, *find_algorithm(call.algorithm), kSmallBytes, nullptr);
      slower += row.has_error() ? 0 : std::log(row.value().result.time_us / call.us);
    }
    return slower > 0;
  };
  double low = 0;
  double high = 0;  // a call takes more than a turn
  for (const SharedCall& call : host.shared) {
    high = std::max(high, call.us);
  }
  constexpr int kHalvings = 30;
  for (int i = 0; i < kHalvings; ++i) {
    const double middle = (low + high) / 2;
    (is_too_slow(middle) ? high : low) = middle;
  }
  return low;
}

}  // namespace

nlohmann::ordered_json format_messages(const MessageHost& host,
                                       const std::vector<MessageLink>& links) {
  nlohmann::ordered_json json;
  json["cores"] = host.cores;
  json["turn_us"] = 0;
  for (const MessageLink& link : links) {
    json["links"][link.name] = format_link(link);
  }
  json["turn_us"] = fit_turn(host, json);
  return json;
}

}  // namespace plexus::tune
