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

/// Works for a MeasuredCall or NcclTimes.
template <class Call>
Result<void> read_times(const Json& json, Call& call) {
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

std::string read_text(const Json& json, const char* name) {
  return json.is_object() && json.contains(name) && json[name].is_string()
             ? json[name].get<std::string>()
             : std::string();
}

/// 0: it is not there, or no number of ranks or nodes.
uint32_t read_count(const Json& json, const char* name) {
  const double count = json.is_object() && json.contains(name) && json[name].is_number_unsigned()
                           ? json[name].get<double>()
                           : 0;
  return count >= 1 && count <= kRanksMax ? static_cast<uint32_t>(count) : 0;
}

/// What MeasuredCall and NcclTimes have in common. `kind`: the field that they have not.
template <class Call>
Result<void> read_common(const Json& json, const char* kind, Call& call) {
  call.collective = read_text(json, "collective");
  call.nranks = read_count(json, "ranks");
  if (call.collective.empty() || call.nranks < 2 || !json.contains("bytes") ||
      !json.contains("time_us") || !json["time_us"].is_object()) {
    return fail(PLEXUS_INVALID_USAGE,
                "lacks one of {}, ranks (2 or more), collective, bytes and time_us", kind);
  }
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
  return read_times(json["time_us"], call);
}

Result<void> read_call(const Json& json, MeasuredCall& call) {
  PLEXUS_TRY(link, find_class(read_text(json, "link")));
  call.link = link;
  return read_common(json, "link", call);
}

Result<void> read_call(const Json& json, NcclTimes& call) {
  PLEXUS_TRY(read_common(json, "nodes", call));
  call.nnodes = read_count(json, "nodes");
  if (call.nnodes == 0 || call.nnodes > call.nranks) {
    return fail(PLEXUS_INVALID_USAGE, "has no nodes from 1 to its ranks");
  }
  for (const auto& [pair, times] : call.time_us) {
    if (!is_pair(pair)) {
      return fail(PLEXUS_INVALID_USAGE,
                  "has times of {}, which is no algorithm of NCCL's and protocol as in ring/LL128",
                  pair);
    }
  }
  return ok();
}

template <class Call>
Result<std::vector<Call>> read_calls(const Json& json, const char* name) {
  if (!json.is_array() || json.size() > kMeasuredMost) {
    return fail(PLEXUS_INVALID_USAGE, "has a {} that is not a list of at most {}", name,
                kMeasuredMost);
  }
  std::vector<Call> calls;
  for (const Json& row : json) {
    Call call;
    if (const auto read = read_call(row, call); read.has_error()) {
      return fail(PLEXUS_INVALID_USAGE, "{}[{}] {}", name, calls.size(), read.error().text);
    }
    calls.push_back(std::move(call));
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
      PLEXUS_TRY(measured, read_calls<MeasuredCall>(part, "measured"));
      file.measured = std::move(measured);
    } else if (name == "nccl") {
      PLEXUS_TRY(nccl, read_calls<NcclTimes>(part, "nccl"));
      file.nccl = std::move(nccl);
    } else if (name != "about" &&
               name != "messages") {  // those are for people and for the simulator
      return fail(PLEXUS_INVALID_USAGE,
                  "has the unknown key {}, expected one of links, host, measured, nccl, about",
                  name);
    }
  }
  return ok();
}

}  // namespace

Result<CalibrationFile> parse_calibration(std::string_view text) {
  const Json json = Json::parse(text, nullptr, false);
  if (!json.is_object() || !(json.contains("links") || json.contains("host") ||
                             json.contains("measured") || json.contains("nccl"))) {
    return fail(
        PLEXUS_INVALID_USAGE,
        "cannot be read as JSON with \"links\", \"host\", \"measured\" or \"nccl\": make it "
        "with `plexus tune`");
  }
  CalibrationFile file = {.model = kDefaultCalibration, .measured = {}, .nccl = {}};
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
