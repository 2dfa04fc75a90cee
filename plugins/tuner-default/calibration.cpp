// SPDX-License-Identifier: Apache-2.0
#include "plugins/tuner-default/calibration.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <fstream>

#include <nlohmann/json.hpp>

namespace plexus::tuner_default {
namespace {

using plugin::fail;
using plugin::ok;
using plugin::Result;
using Json = nlohmann::json;

constexpr const char* kClasses[PLEXUS_LINK_CLASSES] = {"process", "host", "net", "far"};
constexpr double kCostMax = 1e9;  // microseconds

Result<void> read_link(const Json& json, LinkCost& cost) {
  const struct {
    const char* name;
    double& value;
  } fields[] = {{"latency_us", cost.latency_us},
                {"message_us", cost.message_us},
                {"us_per_byte", cost.us_per_byte}};
  if (!json.is_object()) {
    return fail(PLEXUS_INVALID_USAGE, "is no object");
  }
  for (const auto& [name, value] : json.items()) {
    const auto* const field = std::find_if(
        std::begin(fields), std::end(fields),
        [&, wanted = std::string(name)](const auto& row) { return wanted == row.name; });
    if (field == std::end(fields)) {
      return fail(PLEXUS_INVALID_USAGE,
                  "has {}, which is none of latency_us, message_us, us_per_byte", name);
    }
    const double number = value.is_number() ? value.get<double>() : -1;
    if (!std::isfinite(number) || number < 0 || number > kCostMax) {
      return fail(PLEXUS_INVALID_USAGE, "has {} = {}, expected a number from 0 to {}", name,
                  value.dump(), kCostMax);
    }
    field->value = number;
  }
  return ok();
}

}  // namespace

Result<Calibration> read_calibration(const std::filesystem::path& path) {
  std::ifstream file(path);
  const Json json = Json::parse(file, nullptr, false);
  if (!json.is_object() || !json.contains("links") || !json["links"].is_object()) {
    return fail(PLEXUS_INVALID_USAGE,
                "calibration {} cannot be read as JSON with \"links\": make it with `plexus tune`",
                path.string());
  }
  Calibration calibration = kDefaultCalibration;
  for (const auto& [name, link] : json["links"].items()) {
    const auto* const at =
        std::find_if(std::begin(kClasses), std::end(kClasses),
                     [wanted = std::string(name)](const char* row) { return wanted == row; });
    if (at == std::end(kClasses)) {
      return fail(PLEXUS_INVALID_USAGE,
                  "calibration {}: link {} is none of process, host, net, far", path.string(),
                  name);
    }
    auto read = read_link(link, calibration[static_cast<size_t>(at - std::begin(kClasses))]);
    if (read.has_error()) {
      return fail(PLEXUS_INVALID_USAGE, "calibration {}: link {} {}", path.string(), name,
                  read.error().text);
    }
  }
  return calibration;
}

}  // namespace plexus::tuner_default
