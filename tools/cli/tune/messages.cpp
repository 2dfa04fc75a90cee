// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/tune/messages.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include <nlohmann/json.hpp>

#include "kernels/layout/fifo.hpp"
#include "kernels/program/algorithms.hpp"
#include "tools/cli/sim/calibration.hpp"
#include "tools/cli/sim/call.hpp"
#include "tools/cli/tune/fit.hpp"

namespace plexus::tune {
namespace {

// The least part of a call's time that is its messages'.
constexpr double kLeastPart = 0.25;

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
/// `rooted_call_us`: of a rooted call, of which that of its messages is what is left. `turn_us`: of
/// ranks that share a core.
nlohmann::ordered_json format_link(const MessageLink& link, double rooted_call_us, double turn_us) {
  const MessageTimes& times = link.times;
  const SmallCosts small = fit_small(times);
  const bool sends_slowly = link.name == "net";
  nlohmann::ordered_json json;
  json["slot_bytes"] = link.slot_bytes;
  json["call_us"] = small.call_us;
  json["early_us"] = small.early_us;
  json["one_way"]["call_us"] = rooted_call_us;
  for (const auto& [bytes, exchange] : times.exchange) {
    const auto less_call = [](double time_us, double call_us) {
      return std::max(time_us - call_us, time_us * kLeastPart);
    };
    const auto work_of = [&](double time_us) { return less_call(time_us, small.call_us); };
    const auto rooted_work_of = [&](double time_us) { return less_call(time_us, rooted_call_us); };
    const double pair = work_of(exchange);
    // A rank that only sends, or receives, is done with the next message while the other one works.
    const double more = std::clamp(work_of(times.broadcast.at(bytes)), pair / 2, pair);
    const double stage = rooted_work_of(times.broadcast.at(bytes));
    Ends both{};
    both.send = sends_slowly ? more : pair - more;
    both.recv = pair - both.send;
    both.combine = std::max(work_of(times.sum.at(bytes)) - both.send, both.recv / 2);
    both.combine_apart = std::max(work_of(times.sum_out.at(bytes)) - both.send, both.recv / 2);
    Ends one = both;
    // what an exchange takes longer than one way is the other end's part
    const double other = exchange - times.broadcast.at(bytes);
    const double less = std::min(std::max(other, stage / 4), stage);
    one.send = sends_slowly ? stage : less;
    one.recv = sends_slowly ? less : stage;
    if (!sends_slowly) {
      one.combine = rooted_work_of(times.reduce.at(bytes));
      one.combine_apart = rooted_work_of(times.reduce_out.at(bytes));
    }
    json["bytes"].push_back(bytes);
    add_point(json, both);
    add_point(json["one_way"], one);
    json["copy_us"].push_back(std::max(0.0, times.exchange_out.at(bytes) - exchange));
    if (const auto together = times.one_core.find(bytes); together != times.one_core.end()) {
      constexpr double kPartMin = 1.0 / 8;
      // each of the two has a turn when the sender is as far ahead as it may be
      const double ahead =
          sends_slowly || bytes > plexus::kSmallBytes ? double{kSlots} : double{kHeaders};
      const double work = together->second - 2 * (rooted_call_us + turn_us / ahead);
      json["one_core_bytes"].push_back(bytes);
      json["one_core"].push_back(std::clamp(work / (one.send + one.recv), kPartMin, 1.0));
    }
  }
  return json;
}

/// What the simulator says of a call of processes of one host.
Result<SimRow> predict(const SimCalibration& calibration, const SharedCall& call) {
  SimOptions options;
  options.nranks = options.ranks_per_node = call.nranks;
  options.calibration = calibration;
  options.are_bound = true;
  options.near_is_net = call.over_sockets;
  options.calls = call.calls;
  return simulate_call(options, *find_algorithm(call.algorithm), call.size_bytes, nullptr);
}

Result<SimCalibration> parse(const nlohmann::ordered_json& messages) {
  return parse_sim_calibration(nlohmann::ordered_json{{"messages", messages}}.dump());
}

/// How much slower than measured the simulator predicts `calls`, in the geometric mean: its
/// logarithm. 0: it cannot.
double slower_by(const SimCalibration& calibration, const std::vector<SharedCall>& calls) {
  double slower = 0;
  for (const SharedCall& call : calls) {
    const auto row = predict(calibration, call);
    slower += row.has_error() ? 0 : std::log(row.value().result.time_us / call.us);
  }
  return slower;
}

/// The cost of a turn with which `calls` are predicted as they were measured. `messages`: without
/// it.
double fit_turn(const std::vector<SharedCall>& calls, const nlohmann::ordered_json& messages) {
  auto calibration = parse(messages);
  if (calls.empty() || calibration.has_error()) {
    return 0;
  }
  double low = 0;
  double high = 0;  // a call takes more than a turn
  for (const SharedCall& call : calls) {
    high = std::max(high, call.us);
  }
  constexpr int kHalvings = 30;
  for (int i = 0; i < kHalvings; ++i) {
    const double middle = (low + high) / 2;
    calibration.value().turn_us = calibration.value().net_turn_us = middle;
    (slower_by(calibration.value(), calls) > 0 ? high : low) = middle;
  }
  return low;
}

/// The cost of a rooted call with which those are predicted best. `messages`: with another.
double fit_rooted_call(const MessageHost& host,
                       const MessageLink& link,
                       nlohmann::ordered_json messages) {
  const double call_us = fit_small(link.times).call_us;
  if (host.rooted.empty()) {
    return call_us;
  }
  constexpr int kTried = 48;
  const double most_us = link.times.broadcast.begin()->second * (1 - kLeastPart);
  double best_us = call_us;
  double least = std::numeric_limits<double>::infinity();
  for (int i = 0; i <= kTried; ++i) {
    const double rooted_call_us = most_us * i / kTried;
    messages["links"][link.name] = format_link(link, rooted_call_us, messages["turn_us"]);
    const auto calibration = parse(messages);
    const double error = calibration.has_error()
                             ? std::numeric_limits<double>::infinity()
                             : std::abs(slower_by(calibration.value(), host.rooted));
    if (error < least) {
      least = error;
      best_us = rooted_call_us;
    }
  }
  return best_us;
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
    json["links"][link.name] = format_link(link, fit_small(link.times).call_us, 0);
  }
  json["turn_us"] = fit_turn(host.shared, json);
  if (!host.shared_net.empty()) {
    json["net_turn_us"] = fit_turn(host.shared_net, json);
  }
  if (!links.empty()) {
    const MessageLink& memory = links.front();
    json["links"][memory.name] =
        format_link(memory, fit_rooted_call(host, memory, json), json["turn_us"]);
    const nlohmann::ordered_json alone = json;
    fit_crowd(host, alone, json["links"][memory.name]);
  }
  return json;
}

}  // namespace plexus::tune
