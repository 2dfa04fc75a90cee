// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/sim/calibration.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

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

struct CurveName {
  const char* key;
  SimCurve SimWork::*curve;
  double node_bytes_per_byte;  // of two ranks: how tools/cli/tune/messages.cpp measures it
};
constexpr CurveName kCurves[] = {{"send_us", &SimWork::send, 2},
                                 {"recv_us", &SimWork::recv, 2},
                                 {"combine_us", &SimWork::combine, 2},
                                 {"combine_apart_us", &SimWork::combine_apart, 4},
                                 {"copy_us", &SimWork::copy, 4}};

Result<SimWork> read_work(const CalibrationJson& json) {
  SimWork work;
  if (!json.is_object()) {
    return fail(Code::kInvalidArgument, "is not an object");
  }
  PLEXUS_TRY(slot_bytes, read_number(json, "slot_bytes", 1, kCurveBytesMax));
  PLEXUS_TRY(call_us, read_number(json, "call_us", 0, kCostMax));
  PLEXUS_TRY(early_us, read_number(json, "early_us", 0, kCostMax));
  PLEXUS_TRY(bytes, read_list(json, "bytes", kCurveBytesMax));
  if (bytes.front() <= 0 ||
      std::adjacent_find(bytes.begin(), bytes.end(), std::greater_equal<>()) != bytes.end()) {
    return fail(Code::kInvalidArgument, "\"bytes\" do not ascend from above 0");
  }
  work.slot_bytes = slot_bytes;
  work.call_us = call_us;
  work.early_us = early_us;
  for (const CurveName& name : kCurves) {
    PLEXUS_TRY(times, read_list(json, name.key, kCostMax));
    if (times.size() != bytes.size()) {
      return fail(Code::kInvalidArgument, "\"{}\" has {} times for {} sizes", name.key,
                  times.size(), bytes.size());
    }
    work.*name.curve = {
        .bytes = bytes, .us = std::move(times), .node_bytes_per_byte = name.node_bytes_per_byte};
  }
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
  calibration.turn_us = turn_us;
  const CalibrationJson& links = messages->at("links");
  PLEXUS_TRY(host, read_link(links, "host"));
  calibration.host = std::move(host);
  if (links.contains("net")) {
    PLEXUS_TRY(net, read_link(links, "net"));
    calibration.net = std::move(net);
  }
  return calibration;
}

}  // namespace plexus
