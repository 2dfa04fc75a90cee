// SPDX-License-Identifier: Apache-2.0
#include "core/ras/ras_command.hpp"

#include <charconv>
#include <cmath>

#include <fmt/format.h>

#include "core/base/text.hpp"

namespace plexus {
namespace {

constexpr const char* kOk = "OK\n";

RasCommand refuse(std::string reply) { return {.reply = "ERROR: " + std::move(reply) + "\n"}; }

RasCommand parse_timeout(std::string_view text) {
  double seconds = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seconds);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(seconds) ||
      seconds < 0) {
    return refuse(fmt::format("Invalid timeout value {}", printable(text)));
  }
  return {.verb = RasVerb::kTimeout, .reply = kOk, .seconds = seconds};
}

RasCommand parse_format(std::string_view text) {
  const std::string format = lower(text);
  if (format != "text" && format != "json") {
    return refuse(fmt::format("Invalid format {}", printable(text)));
  }
  return {.verb = RasVerb::kFormat, .reply = kOk, .is_json = format == "json"};
}

RasCommand parse_monitor(std::string_view text) {
  RasCommand command{.verb = RasVerb::kMonitor, .reply = kOk, .has_lifecycle = text.empty()};
  for (const std::string_view group : split_list(text, ',')) {
    const std::string name = lower(group);
    if (name != "lifecycle" && name != "trace" && name != "all") {
      return refuse(fmt::format("Invalid event group '{}'", printable(group)));
    }
    command.has_lifecycle = command.has_lifecycle || name != "trace";
  }
  return command;
}

}  // namespace

RasCommand parse_ras_command(std::string_view line) {
  const std::string low = lower(line);
  const auto rest_after = [&](std::string_view head) -> std::optional<std::string_view> {
    return low.starts_with(head) ? std::optional(line.substr(head.size())) : std::nullopt;
  };
  if (low == "status" || low == "verbose status") {
    return {.verb = RasVerb::kStatus, .is_verbose = low != "status"};
  }
  if (rest_after("client protocol ").has_value()) {
    return {.reply = "SERVER PROTOCOL 2\n"};
  }
  if (const auto rest = rest_after("timeout "); rest.has_value()) {
    return parse_timeout(*rest);
  }
  if (const auto rest = rest_after("set format "); rest.has_value()) {
    return parse_format(*rest);
  }
  if (low == "monitor") {
    return parse_monitor({});
  }
  if (const auto rest = rest_after("monitor "); rest.has_value()) {
    return parse_monitor(*rest);
  }
  if (low == "diagnostics") {
    return {.verb = RasVerb::kDiagnostics};
  }
  if (rest_after("control ").has_value()) {
    return refuse("CONTROL is refused: anyone on this host could change the job by it");
  }
  return refuse(fmt::format("Unknown command {}", printable(line)));
}

std::optional<std::string> RasLines::next() {
  const size_t end = bytes_.find('\n');
  if (end == std::string::npos || end >= kLineBytesMax) {
    return std::nullopt;
  }
  std::string line = bytes_.substr(0, end);
  bytes_.erase(0, end + 1);
  if (line.ends_with('\r')) {
    line.pop_back();
  }
  return line;
}

}  // namespace plexus
