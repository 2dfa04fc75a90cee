// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/host_rates.hpp"

#include <string>
#include <utility>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "core/rates/measure.hpp"
#include "core/rates/rates_file.hpp"

namespace plexus {
namespace {

using Json = nlohmann::ordered_json;

/// The way of plain memory in messages of this size.
const char* way_of(const HostWays& ways, const MessageTraits& message) {
  return name(choose_way(ways, message).attach_bytes_min <= message.size_bytes
                  ? Way::kAttach
                  : Way::kThroughSlots);
}

void print_pair(const char* distance, const PairRates& pair) {
  fmt::print("{} cores: a cache line is exchanged in {} ns\n", distance, pair.line_ns);
  for (size_t way = 0; way < kWays; ++way) {
    fmt::print("  us, {:<12}", name(static_cast<Way>(way)));
    for (const uint64_t ns : pair.exchange_ns[way]) {
      fmt::print(" {:>10}", ns == 0 ? "-" : fmt::format("{:.2f}", static_cast<double>(ns) / 1000));
    }
    fmt::print("\n");
  }
}

void print_choice(const HostWays& ways, const char* title, MessageTraits message) {
  fmt::print("  {:<16}", title);
  for (const uint64_t size : kRatesBytes) {
    message.size_bytes = size;
    fmt::print(" {:>10}", way_of(ways, message));
  }
  fmt::print("\n");
}

Json json_of(const PairRates& pair) {
  Json json;
  json["line_ns"] = pair.line_ns;
  for (size_t way = 0; way < kWays; ++way) {
    json[name(static_cast<Way>(way))] = pair.exchange_ns[way];
  }
  return json;
}

}  // namespace

HostWays find_host_ways(const Config& config) {
  HostWays ways{.attach = config.attach, .attach_bytes = config.attach_bytes};
  RatesCache cache;
  if (const auto rates = cache.find(config.rates_file)) {
    ways.measured = true;
    ways.rates = *rates;
  }
  return ways;
}

void print_host_ways(const HostWays& ways) {
  fmt::print("\nrates of this host, {}: buffers exchanged by two processes\n",
             ways.measured ? "measured" : "not measured: built-in numbers");
  fmt::print("  {:<16}", "bytes");
  for (const uint64_t size : kRatesBytes) {
    fmt::print(" {:>10}", size);
  }
  fmt::print("\n");
  print_pair("near", ways.rates.near);
  if (ways.rates.far.line_ns > 0) {
    print_pair("far", ways.rates.far);
  }
  fmt::print("plain memory goes, where the kernel lets processes read each other's:\n");
  print_choice(ways, "both ways", {});
  print_choice(ways, "one way", {.both_ways = false});
  print_choice(ways, "to be combined", {.reduces = true});
}

Json json_of(const HostWays& ways) {
  Json json;
  json["measured"] = ways.measured;
  json["bytes"] = kRatesBytes;
  json["near"] = json_of(ways.rates.near);
  if (ways.rates.far.line_ns > 0) {
    json["far"] = json_of(ways.rates.far);
  }
  json["way"] = Json::array();
  for (const uint64_t size : kRatesBytes) {
    json["way"].push_back(way_of(ways, {.size_bytes = size}));
  }
  return json;
}

Result<void> renew_rates(const Config& config) {
  const auto path = rates_path(config.rates_file);
  if (!path) {
    return ok();
  }
  PLEXUS_TRY(rates, measure_host_rates());
  PLEXUS_TRY(write_rates(*path, rates));
  fmt::print(stderr, "plexus tune: rates of this host written to {}\n", path->string());
  return ok();
}

}  // namespace plexus
