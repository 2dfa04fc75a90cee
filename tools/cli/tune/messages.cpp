// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/tune/messages.hpp"

#include <algorithm>
#include <bit>

#include <nlohmann/json.hpp>

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

/// Of ranks that share cores, each waits for all others of its core in each round.
double fit_turn(const MessageHost& host, const MessageTimes& times) {
  if (host.shared_ranks == 0) {
    return 0;
  }
  const SmallCosts small = fit_small(times);
  const double ranks_per_core = static_cast<double>(host.shared_ranks) / host.cores;
  const double rounds = std::bit_width(static_cast<unsigned>(host.shared_ranks)) - 1;
  const double work = ranks_per_core * (small.call_us + rounds * small.pair_us);
  return std::max(0.0, (host.shared_doubling - work) / (rounds * ranks_per_core));
}

}  // namespace

nlohmann::ordered_json format_messages(const MessageHost& host,
                                       const std::vector<MessageLink>& links) {
  nlohmann::ordered_json json;
  json["cores"] = host.cores;
  json["turn_us"] = fit_turn(host, links.front().times);
  for (const MessageLink& link : links) {
    json["links"][link.name] = format_link(link);
  }
  return json;
}

}  // namespace plexus::tune
