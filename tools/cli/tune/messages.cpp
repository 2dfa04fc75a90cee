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

/// Halving is two exchanges in one call; a ring of one chunk a message and its answer.
SmallCosts fit_small(const MessageTimes& times) {
  const double exchange = times.sum.at(kChunkBytes);
  SmallCosts costs{};
  costs.call_us = std::clamp(2 * exchange - times.halving_two_chunks, 0.0, exchange / 2);
  costs.pair_us = exchange - costs.call_us;
  costs.early_us = std::clamp(costs.pair_us - (times.ring_one_chunk - costs.call_us) / 2, 0.0,
                              costs.pair_us / 2);
  return costs;
}

struct Ends {
  double send;
  double recv;
  double combine;
  double combine_apart;
};

void add_point(nlohmann::ordered_json& json, const Ends& ends) {
  json["send_us"].push_back(ends.send);
  json["recv_us"].push_back(ends.recv);
  json["combine_us"].push_back(ends.combine);
  json["combine_apart_us"].push_back(ends.combine_apart);
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
    const auto work_of = [&](double time_us) {
      return std::max(time_us - small.call_us, time_us / 4);
    };
    const double pair = work_of(exchange);
    // A rank that only sends, or receives, is done with the next message while the other one works.
    const double stage = work_of(times.broadcast.at(bytes));
    const double more = std::clamp(stage, pair / 2, pair);
    Ends both{};
    both.send = sends_slowly ? more : pair - more;
    both.recv = pair - both.send;
    both.combine = std::max(work_of(times.sum.at(bytes)) - both.send, both.recv / 2);
    both.combine_apart = std::max(work_of(times.sum_out.at(bytes)) - both.send, both.recv / 2);
    Ends one = both;
    const double less = std::min(std::max(pair - stage, stage / 4), stage);
    one.send = sends_slowly ? stage : less;
    one.recv = sends_slowly ? less : stage;
    if (!sends_slowly) {
      one.combine = work_of(times.reduce.at(bytes));
      one.combine_apart = work_of(times.reduce_out.at(bytes));
    }
    json["bytes"].push_back(bytes);
    add_point(json, both);
    add_point(json["one_way"], one);
    json["copy_us"].push_back(std::max(0.0, times.exchange_out.at(bytes) - exchange));
  }
  return json;
}

/// What the simulator says of a call of processes of one host.
Result<SimRow> predict(const SimCalibration& calibration, const SharedCall& call) {
  SimOptions options;
  options.nranks = options.ranks_per_node = call.nranks;
  options.calibration = calibration;
  options.calls = call.calls;
  return simulate_call(options, *find_algorithm(call.algorithm), call.size_bytes, nullptr);
}

Result<SimCalibration> parse(const nlohmann::ordered_json& messages) {
  return parse_sim_calibration(nlohmann::ordered_json{{"messages", messages}}.dump());
}

/// The cost of a turn with which the simulator predicts the shared calls, in the geometric mean as
/// slow as they were measured. `messages`: without it.
double fit_turn(const MessageHost& host, const nlohmann::ordered_json& messages) {
  auto calibration = parse(messages);
  if (host.shared.empty() || calibration.has_error()) {
    return 0;
  }
  const auto is_too_slow = [&](double turn_us) {
    calibration.value().turn_us = turn_us;
    double slower = 0;
    for (const SharedCall& call : host.shared) {
      const auto row = predict(calibration.value(), call);
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

/// How much longer than predicted the crowd's calls took, by the byte that a core receives.
/// `messages`: without it. `json`: of the link between processes of the host.
void fit_crowd(const MessageHost& host,
               const nlohmann::ordered_json& messages,
               nlohmann::ordered_json& json) {
  const auto calibration = parse(messages);
  if (calibration.has_error()) {
    return;
  }
  double last_bytes = 0;
  for (const SharedCall& call : host.crowd) {
    const auto row = predict(calibration.value(), call);
    if (row.has_error() || static_cast<double>(row.value().node_bytes) <= last_bytes) {
      continue;
    }
    last_bytes = static_cast<double>(row.value().node_bytes);
    const double core_bytes = static_cast<double>(call.size_bytes) * (call.nranks - 1) / host.cores;
    json["crowd_node_bytes"].push_back(last_bytes);
    json["crowd_us_per_byte"].push_back(std::max(0.0, call.us - row.value().result.time_us) /
                                        core_bytes);
  }
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
  if (!links.empty()) {
    const nlohmann::ordered_json alone = json;
    fit_crowd(host, alone, json["links"][links.front().name]);
  }
  return json;
}

}  // namespace plexus::tune
