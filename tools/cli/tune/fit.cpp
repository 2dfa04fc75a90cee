// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/tune/fit.hpp"

#include <algorithm>
#include <bit>

#include <nlohmann/json.hpp>

#include "core/tuning/candidate.hpp"

namespace plexus::tune {
namespace {

constexpr double kLeastUs = 1e-3;         // smaller times are noise
constexpr double kLeastUsPerByte = 1e-7;  // 10 TB/s
constexpr double kSpreadMax = 3;

/// With 2 ranks, both algorithms move all bytes once; `doubling` combines all of them, `ring` half.
double fit_reduce(const LinkTimes& times, const LinkNumbers& link) {
  const double rounds_us = link.latency_us;  // additional rounds of the ring
  return std::max(0.0, 2 * (times.doubling_large - (times.ring_large - rounds_us)) /
                           static_cast<double>(kLargeBytes));
}

double fit_turn(const HostTimes& times, const LinkNumbers& link) {
  if (times.shared_ranks == 0) {
    return -1;
  }
  const double ranks_per_core = static_cast<double>(times.shared_ranks) / times.cores;
  const double rounds = std::bit_width(static_cast<unsigned>(times.shared_ranks)) - 1;
  const double messages_us = ranks_per_core * rounds * link.message_us;
  return std::max(0.0, (times.shared_doubling - rounds * link.latency_us - messages_us) /
                           (rounds * ranks_per_core));
}

double fit_spread(const HostTimes& times, const LinkNumbers& link, double reduce_us_per_byte) {
  constexpr double kAtOnce = kCrowdRanks - 1;  // chunks in flight in the two-shot algorithm
  const double combined = reduce_us_per_byte / 2;
  const double ratio = times.crowd_twoshot_large / std::max(times.crowd_ring_large, kLeastUs);
  const double factor = (ratio * (link.us_per_byte + combined) - combined) / link.us_per_byte;
  return std::clamp((factor - 1) / (1 - 1 / kAtOnce), 0.0, kSpreadMax);
}

}  // namespace

int choose_shared_ranks(int cores) {
  constexpr int kRanksMax = 64;
  const auto ranks = static_cast<int>(std::bit_ceil(static_cast<unsigned>(cores) + 1));
  return ranks <= kRanksMax ? ranks : 0;
}

LinkNumbers fit_link(const LinkTimes& times) {
  LinkNumbers link{};
  link.message_us = std::max(kLeastUs, std::min(times.broadcast_small, times.all_reduce_small));
  link.latency_us = std::max(kLeastUs, times.all_reduce_small - link.message_us);
  const double large = static_cast<double>(kLargeBytes);
  const double messages_us = large / kSlotBytesOfMemory * link.message_us;
  const double bytes_us = times.ring_large - 2 * link.latency_us - messages_us;
  link.us_per_byte = std::max(kLeastUsPerByte, bytes_us / large - fit_reduce(times, link) / 2);
  return link;
}

HostNumbers fit_host(const HostTimes& times, const LinkTimes& near, const LinkNumbers& link) {
  const double reduce = fit_reduce(near, link);
  return {.reduce_us_per_byte = reduce,
          .turn_us = fit_turn(times, link),
          .spread = fit_spread(times, link, reduce)};
}

std::string format_calibration(const std::vector<NamedLink>& links,
                               const HostNumbers& host,
                               const std::vector<MeasuredCall>& measured,
                               const nlohmann::ordered_json& messages,
                               const std::string& about) {
  nlohmann::ordered_json json;
  json["about"] = about;
  for (const NamedLink& link : links) {
    json["links"][link.name] = {{"latency_us", link.numbers.latency_us},
                                {"message_us", link.numbers.message_us},
                                {"us_per_byte", link.numbers.us_per_byte}};
  }
  if (!links.empty()) {
    json["host"] = {{"reduce_us_per_byte", host.reduce_us_per_byte}, {"spread", host.spread}};
  }
  if (!links.empty() && host.turn_us >= 0) {
    json["host"]["turn_us"] = host.turn_us;
  }
  for (const MeasuredCall& call : measured) {
    json["measured"].push_back({{"link", call.link},
                                {"ranks", call.nranks},
                                {"collective", call.collective},
                                {"bytes", call.bytes},
                                {"time_us", call.time_us}});
  }
  if (!messages.is_null()) {
    json["messages"] = messages;
  }
  return json.dump(1) + "\n";
}

}  // namespace plexus::tune
