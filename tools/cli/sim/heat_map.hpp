// SPDX-License-Identifier: Apache-2.0
// Tables of numbers as SVG, the larger the darker.
#pragma once

#include <span>
#include <string>
#include <vector>

namespace plexus {

struct HeatMap {
  std::string title;
  std::string row_name;  // what rows are, as "ranks"
  std::vector<std::string> rows;
  std::vector<std::string> columns;
  std::vector<std::vector<double>> values;  // [row][column]; darkest at 1
  /// What the cells say; empty: the values in percent.
  std::vector<std::vector<std::string>> texts = {};
};

/// `in_line` of them side by side, further ones below.
std::string draw_heat_maps(std::span<const HeatMap> maps, size_t in_line);

}  // namespace plexus
