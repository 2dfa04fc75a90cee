// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/sim/calibration.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "kernels/layout/fifo.hpp"

namespace plexus {
namespace {

using CalibrationJson = nlohmann::json;

constexpr double kCostMax = 1e9;  // microseconds
constexpr double kCurveBytesMax = 1e12;
constexpr double kCoresMax = 65'536;
constexpr size_t kPointsMax = 1000;

/// A number of `json`, from `low` to `high`.
Result<double> read_number(const CalibrationJson& json, const char* key, double low, double high) {
  const auto at = json.find(key);
  const double number = at != json.end() && at->is_number() ? at->get<double>() : -1;
  if (!std::isfinite(number) || number < low || number > high) {
    return fail(Code::kInvalidArgument, "\"{}\" is not a number from {} to {}", key, low, high);
  }
  return number;
}

Result<std::vector<double>> read_list(const CalibrationJson& json, const char* key, double high) {
  const auto at = json.find(key);
  std::vector<double> numbers;
  if (at != json.end() && at->is_array() && at->size() <= kPointsMax) {
    for (const CalibrationJson& each : *at) {
      numbers.push_back(each.is_number() ? each.get<double>() : -1);
    }
  }
  if (numbers.empty() || std::any_of(numbers.begin(), numbers.end(), [high](double number) {
        return !std::isfinite(number) || number < 0 || number > high;
      })) {
    return fail(Code::kInvalidArgument, "\"{}\" is not a list of numbers from 0 to {}", key, high);
  }
  return numbers;
}

Result<std::vector<double>> read_ascending(const CalibrationJson& json, const char* key) {
  PLEXUS_TRY(bytes, read_list(json, key, kCurveBytesMax));
  if (bytes.front() <= 0 ||
      std::adjacent_find(bytes.begin(), bytes.end(), std::greater_equal<>()) != bytes.end()) {
    return fail(Code::kInvalidArgument, "\"{}\" do not ascend from above 0", key);
  }
  return bytes;
}

struct CurveName {
  const char* key;
  SimCurve SimEnds::*curve;
  // of two ranks: how tools/cli/tune/messages.cpp measures it
  double both_ways_bytes_per_byte;
  double one_way_bytes_per_byte;
};
constexpr CurveName kCurves[] = {{"send_us", &SimEnds::send, 4, 2},
                                 {"recv_us", &SimEnds::recv, 4, 2},
                                 {"combine_us", &SimEnds::combine, 2, 2},
                                 {"combine_apart_us", &SimEnds::combine_apart, 4, 3}};
constexpr double kCopyBytesPerByte = 6;
constexpr double kBothWaysConnections = 2;
constexpr double kOneWayConnections = 1;

Result<SimCurve> read_curve(const CalibrationJson& json,
                            const char* key,
                            const std::vector<double>& bytes,
                            double node_bytes_per_byte,
                            double connections) {
  PLEXUS_TRY(times, read_list(json, key, kCostMax));
  if (times.size() != bytes.size()) {
    return fail(Code::kInvalidArgument, "\"{}\" has {} times for {} sizes", key, times.size(),
                bytes.size());
  }
  return SimCurve{.bytes = bytes,
                  .us = std::move(times),
                  .node_bytes_per_byte = node_bytes_per_byte,
                  .connections = connections};
}

/// Empty where the file has none.
Result<SimTable> read_table(const CalibrationJson& json,
                            const char* bytes_key,
                            const char* key,
                            double high) {
  if (!json.contains(key)) {
    return SimTable{};
  }
  PLEXUS_TRY(bytes, read_ascending(json, bytes_key));
  PLEXUS_TRY(numbers, read_list(json, key, high));
  if (numbers.size() != bytes.size()) {
    return fail(Code::kInvalidArgument, "\"{}\" has {} numbers for {} sizes", key, numbers.size(),
                bytes.size());
  }
  return SimTable{.bytes = std::move(bytes), .numbers = std::move(numbers)};
}

Result<SimWork> read_work(const CalibrationJson& json) {
  SimWork work;
  if (!json.is_object()) {
    return fail(Code::kInvalidArgument, "is not an object");
  }
  PLEXUS_TRY(slot_bytes, read_number(json, "slot_bytes", 1, kCurveBytesMax));
  PLEXUS_TRY(early_us, read_number(json, "early_us", 0, kCostMax));
  PLEXUS_TRY(bytes, read_ascending(json, "bytes"));
  work.slot_bytes = slot_bytes;
  work.early_us = early_us;
  const auto one_way = json.find("one_way");
  if (one_way == json.end() || !one_way->is_object()) {
    return fail(Code::kInvalidArgument, "has no \"one_way\": make it anew with `plexus tune`");
  }
  PLEXUS_TRY(both_call_us, read_number(json, "call_us", 0, kCostMax));
  PLEXUS_TRY(one_call_us, read_number(*one_way, "call_us", 0, kCostMax));
  work.both_ways.call_us = both_call_us;
  work.one_way.call_us = one_call_us;
  for (const CurveName& name : kCurves) {
    PLEXUS_TRY(both, read_curve(json, name.key, bytes, name.both_ways_bytes_per_byte,
                                kBothWaysConnections));
    work.both_ways.*name.curve = std::move(both);
    PLEXUS_TRY(one, read_curve(*one_way, name.key, bytes, name.one_way_bytes_per_byte,
                               kOneWayConnections));
    work.one_way.*name.curve = std::move(one);
  }
  PLEXUS_TRY(copy, read_curve(json, "copy_us", bytes, kCopyBytesPerByte, kBothWaysConnections));
  work.copy = std::move(copy);
  PLEXUS_TRY(one_core, read_table(json, "one_core_bytes", "one_core", 1));
  work.one_core = std::move(one_core);
  PLEXUS_TRY(crowd, read_table(json, "crowd_node_bytes", "crowd_us_per_byte", kCostMax));
  work.crowd_us_per_byte = std::move(crowd);
  return work;
}

Result<SimWork> read_link(const CalibrationJson& links, const char* name) {
  auto work = read_work(links.at(name));
  if (work.has_error()) {
    return std::move(work).error().with_context(std::string("link ") + name);
  }
  return work;
}

}  // namespace

Result<SimCalibration> parse_sim_calibration(std::string_view text) {
  const CalibrationJson json = CalibrationJson::parse(text, nullptr, false);
  const auto messages = json.is_object() ? json.find("messages") : json.end();
  if (messages == json.end() || !messages->is_object() || !messages->contains("links") ||
      !messages->at("links").contains("host")) {
    return fail(Code::kInvalidArgument,
                "has no \"messages\" with \"links\" to a \"host\": make it with `plexus tune "
                "--only-messages`");
  }
  SimCalibration calibration;
  PLEXUS_TRY(cores, read_number(*messages, "cores", 1, kCoresMax));
  PLEXUS_TRY(turn_us, read_number(*messages, "turn_us", 0, kCostMax));
  calibration.cores = static_cast<int>(cores);
  calibration.turn_us = calibration.net_turn_us = turn_us;
  if (messages->contains("net_turn_us")) {
    PLEXUS_TRY(net_turn_us, read_number(*messages, "net_turn_us", 0, kCostMax));
    calibration.net_turn_us = net_turn_us;
  }
  const CalibrationJson& links = messages->at("links");
  PLEXUS_TRY(host, read_link(links, "host"));
  calibration.host = std::move(host);
  calibration.host.small_bytes = kSmallBytes;
  if (links.contains("net")) {
    PLEXUS_TRY(net, read_link(links, "net"));
    calibration.net = std::move(net);
  }
  return calibration;
}

}  // namespace plexus
