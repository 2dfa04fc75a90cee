// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/topo/predicted.hpp"

#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace plexus {
namespace {

struct PredictedRow {
  size_t bytes;
  std::string way;
  double us;
  double bus_gb_per_s;
  double measured_us = 0;  // 0: not measured
};

std::vector<PredictedRow> rows_of(const PredictedTable& table, const PredictedCall& call) {
  constexpr double kBytesPerUsOfGb = 1e3;
  std::vector<PredictedRow> rows;
  const auto add = [&](size_t bytes, double measured_us) {
    const FittedChoice way = table.machine.choose(call.call, bytes);
    const double us =
        fitted_time_us(fitted_costs(), table.machine, call.call, way, bytes, table.setup);
    rows.push_back({.bytes = bytes,
                    .way = way.direct
                               ? "direct"
                               : fmt::format("{}/{}", name(way.algorithm), name(way.protocol)),
                    .us = us,
                    .bus_gb_per_s = static_cast<double>(bytes) / us / kBytesPerUsOfGb *
                                    bus_factor(call.call, table.machine.cluster.ranks),
                    .measured_us = measured_us});
  };
  if (call.measured.empty()) {
    for (const size_t bytes : table.sizes) {
      add(bytes, 0);
    }
  }
  for (const auto& [bytes, us] : call.measured) {
    add(bytes, us);
  }
  return rows;
}

/// Calls above 16 MiB, where sound machines are within 1.5 times of the prediction.
std::string verdict_of(const std::vector<PredictedRow>& rows) {
  constexpr size_t kLarge = 16 << 20;
  constexpr double kSlower = 1.5;
  std::vector<double> slower;
  for (const PredictedRow& row : rows) {
    if (row.bytes > kLarge && row.measured_us > 0) {
      slower.push_back(row.measured_us / row.us);
    }
  }
  if (slower.empty()) {
    return "";
  }
  std::sort(slower.begin(), slower.end());
  const double median = slower[slower.size() / 2];
  return fmt::format("above 16 MiB measured times are {:.2f} of the predicted ones{}\n", median,
                     median < kSlower ? "" : ": slower than this machine should be");
}

}  // namespace

std::string format_predicted(const PredictedTable& table) {
  const FittedMachine& machine = table.machine;
  std::string out =
      fmt::format("ranks: {}, nodes: {}, GPUs: {}, channels: {}\n", machine.cluster.ranks,
                  machine.cluster.nodes, name(machine.gpu), machine.cluster.channels);
  for (const PredictedCall& call : table.calls) {
    const std::vector<PredictedRow> rows = rows_of(table, call);
    out += fmt::format("\n{:>14}  {:15} {:>12} {:>10}{}\n", name(call.call), "chosen", "us",
                       "bus GB/s", call.measured.empty() ? "" : "     measured  predicted/it");
    for (const PredictedRow& row : rows) {
      out += fmt::format("{:14}  {:15} {:12.2f} {:10.2f}", row.bytes, row.way, row.us,
                         row.bus_gb_per_s);
      out += row.measured_us > 0
                 ? fmt::format(" {:12.2f} {:13.2f}\n", row.measured_us, row.us / row.measured_us)
                 : "\n";
    }
    out += verdict_of(rows);
  }
  return out;
}

std::string format_predicted_json(const PredictedTable& table) {
  nlohmann::ordered_json json;
  json["ranks"] = table.machine.cluster.ranks;
  json["nodes"] = table.machine.cluster.nodes;
  json["rows"] = nlohmann::ordered_json::array();
  for (const PredictedCall& call : table.calls) {
    for (const PredictedRow& row : rows_of(table, call)) {
      nlohmann::ordered_json one = {{"collective", name(call.call)},
                                    {"bytes", row.bytes},
                                    {"chosen", row.way},
                                    {"time_us", row.us},
                                    {"bus_gb_per_s", row.bus_gb_per_s}};
      if (row.measured_us > 0) {
        one["measured_us"] = row.measured_us;
      }
      json["rows"].push_back(std::move(one));
    }
  }
  return json.dump() + "\n";
}

Plot plot_predicted(const PredictedTable& table, const std::string& title) {
  Plot plot{.title = title, .x_name = "bytes", .lines = {}};
  for (const PredictedCall& call : table.calls) {
    PlotLine line{.name = name(call.call), .points = {}};
    PlotLine points{.name = "measured", .points = {}, .marks = true};
    for (const PredictedRow& row : rows_of(table, call)) {
      line.points.emplace_back(static_cast<double>(row.bytes), row.us);
      if (row.measured_us > 0) {
        points.points.emplace_back(static_cast<double>(row.bytes), row.measured_us);
      }
    }
    plot.lines.push_back(std::move(line));
    if (!points.points.empty()) {
      plot.lines.push_back(std::move(points));
    }
  }
  return plot;
}

}  // namespace plexus
