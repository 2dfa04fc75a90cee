// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/sim/heat_map.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>

#include "tools/cli/svg.hpp"

namespace plexus {
namespace {

constexpr double kCellWidth = 40;
constexpr double kCellHeight = 20;
constexpr double kRowsWidth = 70;  // with room for the names of rows
constexpr double kTop = 44;        // with room for the title and the names of columns
constexpr double kGap = 24;        // between maps

double width_of(const HeatMap& map) {
  return kRowsWidth + kCellWidth * static_cast<double>(map.columns.size()) + kGap;
}
double height_of(const HeatMap& map) {
  return kTop + kCellHeight * static_cast<double>(map.rows.size()) + kGap;
}

/// White for nothing, by yellow and red to dark red from 100 % on; steps are equal where ratios
/// are.
std::string color_of(double value) {
  struct Stop {
    double at;
    std::array<double, 3> rgb;
  };
  constexpr std::array<Stop, 4> kStops{
      {{0, {255, 255, 255}}, {0.1, {254, 224, 139}}, {0.4, {244, 109, 67}}, {1, {165, 0, 38}}}};
  const double ratio = std::clamp(value, 0.0, 1.0);
  size_t above = 1;
  while (above + 1 < kStops.size() && ratio > kStops[above].at) {
    ++above;
  }
  const Stop& low = kStops[above - 1];
  const Stop& high = kStops[above];
  const double part = (ratio - low.at) / (high.at - low.at);
  std::array<int, 3> rgb{};
  for (size_t i = 0; i < rgb.size(); ++i) {
    rgb[i] = static_cast<int>(std::lround(low.rgb[i] + part * (high.rgb[i] - low.rgb[i])));
  }
  return fmt::format("#{:02x}{:02x}{:02x}", rgb[0], rgb[1], rgb[2]);
}

void draw_map(Svg& svg, const HeatMap& map, double left, double top) {
  constexpr double kBaseline = 14;  // of text in a cell
  constexpr double kDark = 0.6;     // from here on text is white
  svg.begin_group(map.title);
  svg.add_text(left + kRowsWidth, top + kBaseline, map.title, R"(font-size="13")");
  svg.add_text(left + kRowsWidth - 6, top + kTop - 6, map.row_name, R"(text-anchor="end")");
  for (size_t column = 0; column < map.columns.size(); ++column) {
    svg.add_text(left + kRowsWidth + kCellWidth * (static_cast<double>(column) + 0.5),
                 top + kTop - 6, map.columns[column], R"(text-anchor="middle")");
  }
  for (size_t row = 0; row < map.rows.size(); ++row) {
    const double y = top + kTop + kCellHeight * static_cast<double>(row);
    svg.add_text(left + kRowsWidth - 6, y + kBaseline, map.rows[row], R"(text-anchor="end")");
    for (size_t column = 0; column < map.values[row].size(); ++column) {
      const double value = map.values[row][column];
      const double x = left + kRowsWidth + kCellWidth * static_cast<double>(column);
      svg.add_box(x, y, kCellWidth, kCellHeight,
                  fmt::format(R"(fill="{}" stroke="#cccccc")", color_of(value)));
      svg.add_text(
          x + kCellWidth / 2, y + kBaseline,
          map.texts.empty() ? fmt::format("{:.0f}", 100 * value) : map.texts[row][column],
          fmt::format(R"(text-anchor="middle" fill="{}")", value > kDark ? "#ffffff" : "#333333"));
    }
  }
  svg.end_group();
}

}  // namespace

std::string draw_heat_maps(std::span<const HeatMap> maps, size_t in_line) {
  double width = 0;
  double height = 0;
  for (const HeatMap& map : maps) {
    width = std::max(width, width_of(map));
    height = std::max(height, height_of(map));
  }
  const size_t across = std::max<size_t>(1, std::min(in_line, maps.size()));
  const size_t lines = (maps.size() + across - 1) / across;
  Svg svg(static_cast<int>(width * static_cast<double>(across)),
          static_cast<int>(height * static_cast<double>(lines)));
  for (size_t i = 0; i < maps.size(); ++i) {
    draw_map(svg, maps[i], width * static_cast<double>(i % across),
             height * static_cast<double>(i / across));
  }
  return svg.finish();
}

}  // namespace plexus
