// SPDX-License-Identifier: Apache-2.0
// Plots of times as SVG: logarithmic axes, a line per algorithm.
#pragma once

#include <span>
#include <string>
#include <utility>
#include <vector>

namespace plexus {

struct PlotLine {
  std::string name;
  std::vector<std::pair<double, double>> points;  // x and time in us, both positive, x rising
  bool marks = false;                             // a box at each point, no line
};

struct Plot {
  std::string title;
  std::string x_name;
  std::vector<PlotLine> lines;
};

/// Side by side. A line has the same color in all of them, by its name. Plots without points are
/// left out.
std::string draw_plots(std::span<const Plot> plots);

}  // namespace plexus
