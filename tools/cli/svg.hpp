// SPDX-License-Identifier: Apache-2.0
// Pictures as text: the few elements of SVG that our drawings need.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace plexus {

class Svg {
 public:
  /// A white picture of that size in pixels. `defs`: elements that others refer to.
  Svg(int width, int height, std::string_view defs = "");

  /// `attributes`: more of the element, such as `text-anchor="end"`.
  void add_text(double x, double y, std::string_view text, std::string_view attributes = "");
  /// `path`: as SVG's attribute d.
  void add_path(std::string_view path, std::string_view attributes);
  /// A line from point to point.
  void add_line(const std::vector<std::pair<double, double>>& points, std::string_view attributes);
  /// Elements between begin and end say `title` when pointed at.
  void begin_group(std::string_view title);
  void end_group();
  void add_box(double x, double y, double width, double height, std::string_view attributes);

  [[nodiscard]] std::string finish() const { return text_ + "</svg>\n"; }

 private:
  std::string text_;
};

/// `text` with what XML gives a meaning replaced.
std::string escape_xml(std::string_view text);

}  // namespace plexus
