// SPDX-License-Identifier: Apache-2.0
#include "plugins/tuner-default/calibration.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <fstream>
#include <initializer_list>
#include <string>

#include <nlohmann/json.hpp>

namespace plexus::tuner_default {
namespace {

using plugin::fail;
using plugin::ok;
using plugin::Result;
using Json = nlohmann::json;

constexpr const char* kClasses[PLEXUS_LINK_CLASSES] = {"process", "host", "net", "far"};
constexpr double kCostMax = 1e9;  // microseconds

struct Field {
  const char* name;
  double& value;
};

/// Sets the fields that the object names.
Result<void> read_fields(const Json& json, std::initializer_list<Field> fields) {
  if (!json.is_object()) {
    return fail(PLEXUS_INVALID_USAGE, "is no object");
  }
  for (const auto& [name, value] : json.items()) {
    const auto* const field =
        std::find_if(fields.begin(), fields.end(),
                     [wanted = std::string(name)](const Field& row) { return wanted == row.name; });
    if (field == fields.end()) {
      std::string known;
      for (const Field& row : fields) {
        known.append(known.empty() ? "" : ", ").append(row.name);
      }
      return fail(PLEXUS_INVALID_USAGE, "has {}, which is none of {}", name, known);
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

Result<void> read_link(const Json& json, LinkCost& cost) {
  return read_fields(json, {{"latency_us", cost.latency_us},
                            {"message_us", cost.message_us},
                            {"us_per_byte", cost.us_per_byte}});
}

Result<void> read_host(const Json& json, HostCost& cost) {
  return read_fields(json, {{"reduce_us_per_byte", cost.reduce_us_per_byte},
                            {"turn_us", cost.turn_us},
                            {"spread", cost.spread}});
}

Result<void> read_links(const Json& json, Calibration& calibration) {
  if (!json.is_object()) {
    return fail(PLEXUS_INVALID_USAGE, "links is no object");
  }
  for (const auto& [name, link] : json.items()) {
    const auto* const at =
        std::find_if(std::begin(kClasses), std::end(kClasses),
                     [wanted = std::string(name)](const char* row) { return wanted == row; });
    if (at == std::end(kClasses)) {
      return fail(PLEXUS_INVALID_USAGE, "link {} is none of process, host, net, far", name);
    }
    const auto read =
        read_link(link, calibration.links[static_cast<size_t>(at - std::begin(kClasses))]);
    if (read.has_error()) {
      return fail(PLEXUS_INVALID_USAGE, "link {} {}", name, read.error().text);
    }
  }
  return ok();
}

Result<void> read_object(const Json& json, Calibration& calibration) {
  for (const auto& [name, part] : json.items()) {
    if (name == "links") {
      PLEXUS_TRY(read_links(part, calibration));
    } else if (name == "host") {
      const auto read = read_host(part, calibration.host);
      if (read.has_error()) {
        return fail(PLEXUS_INVALID_USAGE, "host {}", read.error().text);
      }
    } else if (name != "about") {
      return fail(PLEXUS_INVALID_USAGE, "{} is none of links, host, about", name);
    }
  }
  return ok();
}

}  // namespace

Result<Calibration> read_calibration(const std::filesystem::path& path) {
  std::ifstream file(path);
  const Json json = Json::parse(file, nullptr, false);
  if (!json.is_object() || !(json.contains("links") || json.contains("host"))) {
    return fail(PLEXUS_INVALID_USAGE,
                "calibration {} cannot be read as JSON with \"links\" or \"host\": make it with "
                "`plexus tune`",
                path.string());
  }
  Calibration calibration = kDefaultCalibration;
  const auto read = read_object(json, calibration);
  if (read.has_error()) {
    return fail(PLEXUS_INVALID_USAGE, "calibration {}: {}", path.string(), read.error().text);
  }
  return calibration;
}

}  // namespace plexus::tuner_default
