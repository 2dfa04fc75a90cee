// SPDX-License-Identifier: Apache-2.0
#include "plugins/tuner-default/calibration.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "guest/file.hpp"

namespace plexus::tuner_default {
namespace {

using plugin::fail;
using plugin::ok;
using plugin::Result;
using Json = nlohmann::json;

constexpr const char* kClasses[PLEXUS_LINK_CLASSES] = {"process", "host", "net", "xdc"};
constexpr double kCostMax = 1e9;  // microseconds
constexpr double kBytesMax = 1e15;
constexpr size_t kMeasuredMost = 100'000;  // numbers
constexpr uint32_t kRanksMax = 1U << 20;

struct Field {
  const char* name;
  double& value;
};

/// Sets the fields that are present in the object.
Result<void> read_fields(const Json& json, std::initializer_list<Field> fields) {
  if (!json.is_object()) {
    return fail(PLEXUS_INVALID_USAGE, "is not an object");
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
      return fail(PLEXUS_INVALID_USAGE, "has the unknown key {}, expected one of {}", name, known);
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

Result<uint32_t> find_class(const std::string& name) {
  const auto* const at = std::find_if(std::begin(kClasses), std::end(kClasses),
                                      [&](const char* row) { return name == row; });
  if (at == std::end(kClasses)) {
    return fail(PLEXUS_INVALID_USAGE,
                "has the unknown link {}, expected one of process, host, net, xdc", name);
  }
  return static_cast<uint32_t>(at - std::begin(kClasses));
}

Result<void> read_links(const Json& json, Calibration& calibration) {
  if (!json.is_object()) {
    return fail(PLEXUS_INVALID_USAGE, "has links that are not an object");
  }
  for (const auto& [name, link] : json.items()) {
    PLEXUS_TRY(link_class, find_class(name));
    const auto read = read_link(link, calibration.links[link_class]);
    if (read.has_error()) {
      return fail(PLEXUS_INVALID_USAGE, "link {} {}", name, read.error().text);
    }
  }
  return ok();
}

/// Numbers above 0 and at most `most`.
Result<std::vector<double>> read_numbers(const Json& json, double most) {
  if (!json.is_array() || json.empty() || json.size() > kMeasuredMost) {
    return fail(PLEXUS_INVALID_USAGE, "is not a list of numbers");
  }
  std::vector<double> numbers;
  for (const Json& value : json) {
    const double number = value.is_number() ? value.get<double>() : -1;
    if (!std::isfinite(number) || number <= 0 || number > most) {
      return fail(PLEXUS_INVALID_USAGE, "has {}, expected a number above 0, at most {}",
                  value.dump(), most);
    }
    numbers.push_back(number);
  }
  return numbers;
}

Result<void> read_times(const Json& json, MeasuredCall& call) {
  for (const auto& [algorithm, list] : json.items()) {
    auto times = read_numbers(list, kCostMax);
    if (times.has_error()) {
      return fail(PLEXUS_INVALID_USAGE, "time_us of {} {}", algorithm, times.error().text);
    }
    if (times.value().size() != call.bytes.size()) {
      return fail(PLEXUS_INVALID_USAGE, "has {} times of {} for {} sizes: the counts must be equal",
                  times.value().size(), algorithm, call.bytes.size());
    }
    call.time_us[algorithm] = std::move(times.value());
  }
  return ok();
}

Result<MeasuredCall> read_measured_call(const Json& json) {
  const auto text = [&](const char* name) {
    return json.is_object() && json.contains(name) && json[name].is_string()
               ? json[name].get<std::string>()
               : std::string();
  };
  MeasuredCall call;
  call.collective = text("collective");
  PLEXUS_TRY(link, find_class(text("link")));
  call.link = link;
  const double ranks = json.contains("ranks") && json["ranks"].is_number_unsigned()
                           ? json["ranks"].get<double>()
                           : 0;
  if (call.collective.empty() || ranks < 2 || ranks > kRanksMax || !json.contains("bytes") ||
      !json.contains("time_us") || !json["time_us"].is_object()) {
    return fail(PLEXUS_INVALID_USAGE,
                "lacks one of link, ranks (2 or more), collective, bytes and time_us");
  }
  call.nranks = static_cast<uint32_t>(ranks);
  auto bytes = read_numbers(json["bytes"], kBytesMax);
  if (bytes.has_error()) {
    return fail(PLEXUS_INVALID_USAGE, "bytes {}", bytes.error().text);
  }
  call.bytes = std::move(bytes.value());
  if (std::adjacent_find(call.bytes.begin(), call.bytes.end(), std::greater_equal<>()) !=
          call.bytes.end() ||
      call.bytes.front() < 1) {
    return fail(PLEXUS_INVALID_USAGE, "has bytes that do not ascend from 1 or more");
  }
  PLEXUS_TRY(read_times(json["time_us"], call));
  return call;
}

Result<std::vector<MeasuredCall>> read_measured(const Json& json) {
  if (!json.is_array() || json.size() > kMeasuredMost) {
    return fail(PLEXUS_INVALID_USAGE, "has a measured that is not a list of at most {}",
                kMeasuredMost);
  }
  std::vector<MeasuredCall> calls;
  for (const Json& row : json) {
    auto call = read_measured_call(row);
    if (call.has_error()) {
      return fail(PLEXUS_INVALID_USAGE, "measured[{}] {}", calls.size(), call.error().text);
    }
    calls.push_back(std::move(call.value()));
  }
  return calls;
}

Result<void> read_object(const Json& json, CalibrationFile& file) {
  for (const auto& [name, part] : json.items()) {
    if (name == "links") {
      PLEXUS_TRY(read_links(part, file.model));
    } else if (name == "host") {
      const auto read = read_host(part, file.model.host);
      if (read.has_error()) {
        return fail(PLEXUS_INVALID_USAGE, "host {}", read.error().text);
      }
    } else if (name == "measured") {
      PLEXUS_TRY(measured, read_measured(part));
      file.measured = std::move(measured);
    } else if (name != "about" &&
               name != "messages") {  // those are for people and for the simulator
      return fail(PLEXUS_INVALID_USAGE,
                  "has the unknown key {}, expected one of links, host, measured, about", name);
    }
  }
  return ok();
}

}  // namespace

Result<CalibrationFile> parse_calibration(std::string_view text) {
  const Json json = Json::parse(text, nullptr, false);
  if (!json.is_object() ||
      !(json.contains("links") || json.contains("host") || json.contains("measured"))) {
    return fail(PLEXUS_INVALID_USAGE,
                "cannot be read as JSON with \"links\", \"host\" or \"measured\": make it with "
                "`plexus tune`");
  }
  CalibrationFile file = {.model = kDefaultCalibration, .measured = {}};
  PLEXUS_TRY(read_object(json, file));
  return file;
}

Result<CalibrationFile> read_calibration(const std::filesystem::path& path) {
  const FileText read = read_regular_file(path.string());
  if (!read.refusal.empty()) {
    return fail(PLEXUS_INVALID_USAGE, "it cannot be read: {}", read.refusal);
  }
  return parse_calibration(read.text);
}

}  // namespace plexus::tuner_default
