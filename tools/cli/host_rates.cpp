// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/host_rates.hpp"

#include <string>
#include <utility>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "core/tuning/measure_rates.hpp"
#include "core/tuning/rates_file.hpp"

namespace plexus {
namespace {

using Json = nlohmann::ordered_json;

/// The copy method of plain memory in messages of this size.
const char* method_of(const HostCopyMethods& methods, const MessageTraits& message) {
  return name(choose_copy_method(methods, message).attach_bytes_min <= message.size_bytes
                  ? CopyMethod::kAttach
                  : CopyMethod::kThroughSlots);
}

void print_pair(const char* distance, const PairRates& pair) {
  fmt::print("{} cores: a cache line is exchanged in {} ns\n", distance, pair.line_ns);
  for (size_t method = 0; method < kCopyMethods; ++method) {
    fmt::print("  us, {:<12}", name(static_cast<CopyMethod>(method)));
    for (const uint64_t ns : pair.exchange_ns[method]) {
      fmt::print(" {:>10}", ns == 0 ? "-" : fmt::format("{:.2f}", static_cast<double>(ns) / 1000));
    }
    fmt::print("\n");
  }
}

void print_choice(const HostCopyMethods& methods, const char* title, MessageTraits message) {
  fmt::print("  {:<16}", title);
  for (const uint64_t size : kRatesBytes) {
    message.size_bytes = size;
    fmt::print(" {:>10}", method_of(methods, message));
  }
  fmt::print("\n");
}

Json json_of(const PairRates& pair) {
  Json json;
  json["line_ns"] = pair.line_ns;
  for (size_t method = 0; method < kCopyMethods; ++method) {
    json[name(static_cast<CopyMethod>(method))] = pair.exchange_ns[method];
  }
  return json;
}

}  // namespace

HostCopyMethods find_copy_methods(const Config& config) {
  HostCopyMethods methods{.attach = config.attach, .attach_bytes = config.attach_bytes};
  RatesCache cache;
  if (const auto rates = cache.find(config.rates_file)) {
    methods.measured = true;
    methods.rates = *rates;
  }
  return methods;
}

void print_copy_methods(const HostCopyMethods& methods) {
  fmt::print("\nrates of this host, {}: buffers exchanged by two processes\n",
             methods.measured ? "measured" : "not measured: built-in numbers");
  fmt::print("  {:<16}", "bytes");
  for (const uint64_t size : kRatesBytes) {
    fmt::print(" {:>10}", size);
  }
  fmt::print("\n");
  print_pair("near", methods.rates.near);
  if (methods.rates.far.line_ns > 0) {
    print_pair("far", methods.rates.far);
  }
  fmt::print("plain memory goes, where the kernel lets processes read each other's:\n");
  print_choice(methods, "both ways", {});
  print_choice(methods, "one way", {.both_ways = false});
  print_choice(methods, "to be combined", {.reduces = true});
}

Json json_of(const HostCopyMethods& methods) {
  Json json;
  json["measured"] = methods.measured;
  json["bytes"] = kRatesBytes;
  json["near"] = json_of(methods.rates.near);
  if (methods.rates.far.line_ns > 0) {
    json["far"] = json_of(methods.rates.far);
  }
  json["copy_method"] = Json::array();
  for (const uint64_t size : kRatesBytes) {
    json["copy_method"].push_back(method_of(methods, {.size_bytes = size}));
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
