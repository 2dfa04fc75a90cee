// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/sim/plot.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>

#include "tools/cli/svg.hpp"

namespace plexus {
namespace {

constexpr double kPlotWidth = 420;
constexpr double kPlotHeight = 320;
constexpr double kAxisLeft = 70;      // of a plot's axis, with room for its numbers
constexpr double kAxisTop = 40;       // with room for the title
constexpr double kBottom = 50;        // for the numbers of the other axis
constexpr double kLegendWidth = 110;  // for the names of lines
constexpr double kPlotStep = kAxisLeft + kPlotWidth + kLegendWidth;

// Okabe and Ito's, which people with defective colour vision tell apart.
constexpr std::array kColors = {"#0072b2", "#d55e00", "#009e73", "#cc79a7",
                                "#e69f00", "#56b4e9", "#000000", "#8a8a00"};
constexpr std::array kDashes = {"", "6,3", "2,2"};

/// Whole powers of the base around the values.
struct Axis {
  double low;
  double high;
  double base;

  Axis(double least, double most, double of_base) : base(of_base) {
    low = std::floor(exponent(least));
    high = std::max(low + 1, std::ceil(exponent(most)));
  }
  [[nodiscard]] double exponent(double value) const { return std::log(value) / std::log(base); }
  /// From 0 to 1.
  [[nodiscard]] double place(double value) const { return (exponent(value) - low) / (high - low); }
  /// Exponents to be marked, at most 10.
  [[nodiscard]] std::vector<double> marks() const {
    constexpr double kMarksMax = 10;
    const double step = std::ceil((high - low) / kMarksMax);
    std::vector<double> marks;
    for (double at = low; at <= high; at += step) {
      marks.push_back(at);
    }
    return marks;
  }
};

std::string with_unit(double value, const std::array<const char*, 5>& units, double unit) {
  size_t at = 0;
  while (value >= unit && at + 1 < units.size()) {
    value /= unit;
    ++at;
  }
  return fmt::format("{:g}{}", value, units[at]);
}

std::string time_text(double us) {
  return us < 1 ? fmt::format("{:g} ns", us * 1000)
                : with_unit(us, {" us", " ms", " s", "000 s", "000000 s"}, 1000);
}

/// By name, in the order of first use.
std::vector<std::string> list_names(std::span<const Plot> plots) {
  std::vector<std::string> names;
  for (const Plot& plot : plots) {
    for (const PlotLine& line : plot.lines) {
      if (std::find(names.begin(), names.end(), line.name) == names.end()) {
        names.push_back(line.name);
      }
    }
  }
  return names;
}

std::string style_of(size_t index) {
  return fmt::format("stroke=\"{}\" stroke-dasharray=\"{}\" stroke-width=\"1.5\" fill=\"none\"",
                     kColors[index % kColors.size()],
                     kDashes[index / kColors.size() % kDashes.size()]);
}

void draw_axes(Svg& svg, const Plot& plot, double left, const Axis& x, const Axis& y) {
  constexpr double kNumbers = 14;
  const double bottom = kAxisTop + kPlotHeight;
  for (const double mark : x.marks()) {
    const double at = left + kPlotWidth * (mark - x.low) / (x.high - x.low);
    svg.add_line({{at, kAxisTop}, {at, bottom}}, R"(stroke="#dddddd")");
    svg.add_text(at, bottom + kNumbers,
                 with_unit(std::pow(x.base, mark), {"", " Ki", " Mi", " Gi", " Ti"}, 1024),
                 R"(text-anchor="middle")");
  }
  for (const double mark : y.marks()) {
    const double at = bottom - kPlotHeight * (mark - y.low) / (y.high - y.low);
    svg.add_line({{left, at}, {left + kPlotWidth, at}}, R"(stroke="#dddddd")");
    svg.add_text(left - 6, at + 4, time_text(std::pow(y.base, mark)), R"(text-anchor="end")");
  }
  svg.add_box(left, kAxisTop, kPlotWidth, kPlotHeight, R"(fill="none" stroke="#666666")");
  svg.add_text(left, kAxisTop - kNumbers, plot.title, R"(font-size="13")");
  svg.add_text(left + kPlotWidth / 2, bottom + 2.5 * kNumbers, plot.x_name,
               R"(text-anchor="middle")");
}

void draw_plot(Svg& svg, const Plot& plot, double left, const std::vector<std::string>& names) {
  double x_least = HUGE_VAL;
  double x_most = 0;
  double y_least = HUGE_VAL;
  double y_most = 0;
  for (const PlotLine& line : plot.lines) {
    for (const auto& [x, y] : line.points) {
      x_least = std::min(x_least, x);
      x_most = std::max(x_most, x);
      y_least = std::min(y_least, y);
      y_most = std::max(y_most, y);
    }
  }
  const Axis x(x_least, x_most, 2);
  const Axis y(y_least, y_most, 10);
  draw_axes(svg, plot, left, x, y);
  for (const PlotLine& line : plot.lines) {
    std::vector<std::pair<double, double>> points;
    for (const auto& [at, time_us] : line.points) {
      points.emplace_back(left + kPlotWidth * x.place(at),
                          kAxisTop + kPlotHeight * (1 - y.place(time_us)));
    }
    const auto index =
        static_cast<size_t>(std::find(names.begin(), names.end(), line.name) - names.begin());
    svg.begin_group(line.name);
    if (line.marks) {
      constexpr double kSide = 5;
      for (const auto& [left_of, top_of] : points) {
        svg.add_box(left_of - kSide / 2, top_of - kSide / 2, kSide, kSide, style_of(index));
      }
    } else {
      svg.add_line(points, style_of(index));
    }
    svg.end_group();
  }
}

}  // namespace

std::string draw_plots(std::span<const Plot> plots) {
  constexpr double kNameHeight = 16;
  constexpr double kSample = 20;
  std::vector<Plot> shown;
  for (const Plot& plot : plots) {
    if (std::any_of(plot.lines.begin(), plot.lines.end(),
                    [](const PlotLine& line) { return !line.points.empty(); })) {
      shown.push_back(plot);
    }
  }
  const std::vector<std::string> names = list_names(shown);
  const double height =
      std::max(kPlotHeight + kBottom, kNameHeight * static_cast<double>(names.size())) + kAxisTop;
  Svg svg(static_cast<int>(kPlotStep * static_cast<double>(std::max<size_t>(1, shown.size()))),
          static_cast<int>(height));
  for (size_t i = 0; i < shown.size(); ++i) {
    draw_plot(svg, shown[i], kPlotStep * static_cast<double>(i) + kAxisLeft, names);
  }
  const double at = kAxisLeft + kPlotWidth + 8;
  for (size_t i = 0; i < names.size(); ++i) {
    const double y = kAxisTop + kNameHeight * (static_cast<double>(i) + 0.5);
    svg.add_line({{at, y}, {at + kSample, y}}, style_of(i));
    svg.add_text(at + kSample + 4, y + 4, names[i]);
  }
  return svg.finish();
}

}  // namespace plexus
